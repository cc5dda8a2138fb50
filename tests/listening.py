"""The addresses that a process listens on."""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
from pathlib import Path

LISTEN = "0A"  # the state of a socket in /proc/net/tcp


def listening(pid: int) -> set[str]:
    """Return the addresses (without ports) on which this process accepts TCP connections."""
    if not Path("/proc/self/net/tcp").exists():  # macOS
        lsof = ["lsof", "-nP", "-iTCP", "-sTCP:LISTEN", "-a", "-p", str(pid), "-Fn"]
        output = subprocess.run(lsof, capture_output=True, text=True, check=False).stdout
        hosts = re.findall(r"^n(.+):\d+$", output, re.MULTILINE)
        return {"0.0.0.0" if host == "*" else host.strip("[]") for host in hosts}
    inodes = {_inode(descriptor) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}
    tables = (Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6"))
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    rows = [line.split() for line in lines]
    return {address_of(row[1].partition(":")[0]) for row in rows if row[3] == LISTEN and row[9] in inodes}


def public(pid: int) -> set[str]:
    """Return those of them that other machines can reach."""
    return {address for address in listening(pid) if not _loopback(address)}


def _loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def _inode(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor).removeprefix("socket:[").rstrip("]")  # noqa: PTH115  # not a path
    except OSError:  # closed meanwhile
        return ""


def address_of(text: str) -> str:
    """Parse an address of /proc/net: `0100007F` is 127.0.0.1, four-byte words in host byte order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
