"""Creates ``.venv``: every package from the lock, by hash, and this checkout, editable.

Needs Python 3.11 or newer and only its standard library. ``make setup`` calls it.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
PIP = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]


def say(step: int, line: str) -> None:
    print(f"setup {step}/3: {line}", flush=True)


def make_venv() -> None:
    """Create .venv, but keep one of the same Python: programs may be running in it."""
    config = VENV / "pyvenv.cfg"
    version = ".".join(str(part) for part in sys.version_info[:3])
    if config.exists() and f"version = {version}\n" in config.read_text():
        say(1, f"keeping .venv (Python {version})")
        return
    say(1, f"creating .venv with Python {version}")
    venv.EnvBuilder(with_pip=True, clear=True).create(VENV)


def install_lock() -> None:
    total = len(re.findall(r"^[A-Za-z0-9]", LOCK.read_text(), re.MULTILINE))
    say(2, f"installing up to {total} packages from requirements.lock (40 s if all are new)")
    command = [*PIP, "install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK)]
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        found = 0
        for line in process.stdout:
            output.append(line)
            if line.startswith("Collecting "):
                found += 1
                if found % 20 == 0:
                    say(2, f"{found} of {total} packages resolved")
            elif line.startswith("Installing "):
                say(2, f"unpacking {found} packages")
    if process.returncode:
        sys.exit("".join(output[-25:]) + "setup: could not install the lock; see the output of pip above.")


def install_checkout() -> None:
    say(3, "installing streamproc itself, editable")
    command = [*PIP, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    if subprocess.run(command, check=False).returncode:
        sys.exit("setup: could not install streamproc; see the output of pip above.")


def main() -> None:
    (ROOT / ".local").mkdir(exist_ok=True)
    with (ROOT / ".local" / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second `make` in this checkout waits for the first
        make_venv()
        install_lock()
        install_checkout()


if __name__ == "__main__":
    main()
