"""The programs of `make live`: the coding CLIs, installed with npm from a lock, or those of a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = ROOT / ".local" / "live"
MADE_OF: Final = ("package.json", "package-lock.json", ".npmrc")
READY: Final = "ready"
# Of the scripts of packages none is run but this one, which puts the program for this machine in its place.
LINK: Final = "node_modules/@anthropic-ai/claude-code/install.cjs"
INSTALL_TIMEOUT_S: Final = 600
VERSION_TIMEOUT_S: Final = 60


def install() -> Path:
    """Install what the lock names, if that was not done; return the folder with the programs. Raises `OSError`."""
    programs = FOLDER / "node_modules" / ".bin"
    wanted = b"".join((HERE / name).read_bytes() for name in MADE_OF)
    if (FOLDER / READY).exists() and (FOLDER / READY).read_bytes() == wanted:
        return programs
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in MADE_OF:
        shutil.copy(HERE / name, FOLDER)
    for command in (
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        ["node", LINK],
    ):
        try:
            done = subprocess.run(
                command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"{command[0]} took more than {INSTALL_TIMEOUT_S} s") from None
        except FileNotFoundError:
            raise OSError(f"there is no {command[0]}: install Node 20 or newer") from None
        if done.returncode:
            raise OSError(done.stderr.strip()[-1000:] or f"{command[0]} ended with {done.returncode}")
    (FOLDER / READY).write_bytes(wanted)
    return programs


def version_of(name: str, programs: Path) -> str:
    """Return the version of a CLI in a folder; empty if it is not there, or does not start."""
    program = programs / name
    if not program.exists():
        return ""
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [str(program), "--version"], capture_output=True, text=True, check=False, timeout=VERSION_TIMEOUT_S,
                env={"PATH": os.environ.get("PATH", ""), "HOME": home}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
    found = re.search(r"\d+\.\d+\.\d+[\w.-]*", done.stdout)
    return found[0] if found and done.returncode == 0 else ""
