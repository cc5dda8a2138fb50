"""Installs the Node packages of the TypeScript example from its lock, where there is a Node, for the tests.

    python deploy/local/node_packages.py        # into .local/typescript

Without Node, or without a way to the packages, it says so and exits 0, too: the tests that need them are skipped.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "typescript"
FOLDER = ROOT / ".local" / "typescript"  # not beside the sources: tools that walk examples/ would find the packages
MADE_OF = ("package.json", "package-lock.json", ".npmrc")
OLDEST = (20, 19, 4)
INSTALL_TIMEOUT_S = 300
MISSING = "NO NODE PACKAGES: the tests of examples/typescript are skipped. "


def problem() -> str:
    """Return why the TypeScript tests cannot run, with the remedy; nothing if they can."""
    wanted = ".".join(map(str, OLDEST))
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return f"{MISSING}There is no node, or no npm: install Node {wanted} or newer (Debian: apt-get install npm)."
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    if tuple(int(part) for part in re.findall(r"\d+", shown)[:3]) < OLDEST:
        return f"{MISSING}This is Node {shown}: install {wanted} or newer."
    if not (FOLDER / lock_hash()).exists():
        return f"{MISSING}They are not installed: `make typescript` installs them, with a way to a registry."
    return ""


def lock_hash() -> str:
    """Return the name of the file that says which lock is installed."""
    return f"ready-{hashlib.sha256(b''.join((EXAMPLE / name).read_bytes() for name in MADE_OF)).hexdigest()[:16]}"


def install() -> str:
    """Install what the lock names. Return what npm says if that fails."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in MADE_OF:
        shutil.copy(EXAMPLE / name, FOLDER)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S,
            env=os.environ | {"npm_config_fetch_retries": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"npm ci took more than {INSTALL_TIMEOUT_S} s"
    if done.returncode:
        return done.stderr.strip()[-1000:] or f"npm ci ended with {done.returncode}"
    (FOLDER / lock_hash()).touch()
    return ""


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"typescript: {text}", file=sys.stderr, flush=True)


def main() -> int:
    why = problem()
    if "not installed" in why:
        say("installing the packages of examples/typescript/package-lock.json")
        failed = install()
        why = f"{MISSING}{failed}" if failed else ""
    if why:
        say(why)
    return 0


if __name__ == "__main__":
    sys.exit(main())
