"""Finds promtool and Prometheus on this machine, for the tests of alerts and dashboard; on Debian, fetches both.

    python deploy/local/prometheus.py          # prints the path of promtool

Debian's package is unpacked into .local, which needs no root, and starts no service. Exits 0 without promtool, too: the
tests that need it are skipped, and say so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).resolve().parents[2] / ".local" / "prometheus"
PACKAGE = "prometheus"
FETCH_TIMEOUT_S = 300
MISSING = (
    "NO PROMTOOL: the tests of alerts and dashboard are skipped. "
    "Put promtool and prometheus on the PATH (Debian: apt-get install prometheus)."
)

Program = Literal["promtool", "prometheus"]


def find(program: Program) -> str | None:
    """Return the path of a program, the system's or the one that `fetch` unpacked; None if there is none."""
    return shutil.which(program) or shutil.which(program, path=str(FOLDER / "usr" / "bin"))


def fetch() -> None:
    """Download Debian's package and unpack it into `FOLDER`, if this is Debian and its archive is reachable."""
    apt, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or unpack is None:
        return
    say(f"downloading Debian's package {PACKAGE}")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        if not run([apt, "-qq", "download", PACKAGE], folder):  # the lists of packages may be missing or old
            run([apt, "-qq", "update"], folder)  # needs root
            run([apt, "-qq", "download", PACKAGE], folder)
        for package in Path(folder).glob("*.deb"):
            unpacked = Path(folder) / "unpacked"
            unpacked.mkdir()
            if run([unpack, "--extract", str(package), str(unpacked)], folder):
                shutil.rmtree(FOLDER, ignore_errors=True)
                unpacked.rename(FOLDER)
            return


def run(command: list[str], folder: str) -> bool:
    """Run a command quietly in a folder. Return whether it succeeded."""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, cwd=folder, stdout=quiet, stderr=quiet, check=False, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        say(f"{command[0]} took more than {FETCH_TIMEOUT_S} s")
        return False
    return done.returncode == 0


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"prometheus: {text}", file=sys.stderr, flush=True)


def main() -> int:
    if find("promtool") is None:
        fetch()
    path = find("promtool")
    if path is None:
        say(MISSING)
    else:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
