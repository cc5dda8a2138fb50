"""Looks at what the lock files pin: whether it is whole and hashed, under which licences it comes, what is known of it.

    .venv/bin/python deploy/local/audit.py [--offline]

The first two need no network. The third asks the vulnerability service of the Python package index, through pip-audit,
which lives in a place of its own (``.local/audit``, from ``requirements-audit.lock``). A package that the service does
not know counts as not audited, and fails: a mirror that answers "not found" to every question must not look like a
clean bill.

Exit 0: audited, and nothing is known; 1: something is known, or not everything could be audited.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import venv
from collections import defaultdict
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".local" / "audit"
LOCKS = ("requirements.lock", "requirements-audit.lock")  # the one of the image is a part of the first
PIP_AUDIT_LOCK = ROOT / "requirements-audit.lock"


def say(line: str) -> None:
    print(f"audit: {line}", flush=True)


def entries(lock: str) -> dict[str, str]:
    """Each entry of a lock file, by its package's name."""
    text = (ROOT / lock).read_text().strip()
    return {re.split(r"[=<>!~ ;\[]", entry)[0]: entry for entry in re.split(r"\n(?=\S)", text)}


def unpinned(lock: str) -> list[str]:
    """The packages that are not pinned to one version and its hashes."""
    pinned = re.compile(r"[\w.\-\[\]]+==\S+.*--hash=sha256:[0-9a-f]{64}", re.DOTALL)
    return [name for name, entry in entries(lock).items() if not pinned.match(entry)]


def licences(names: list[str]) -> dict[str, list[str]]:
    """The packages that are installed here, by licence."""
    found = defaultdict(list)
    for name in names:
        try:
            found[licence_of(distribution(name))].append(name)
        except PackageNotFoundError:  # of another platform, or of another lock
            continue
    return dict(sorted(found.items()))


def licence_of(package: Distribution) -> str:
    """What a package says of its licence: an SPDX expression, a classifier, or a line of text."""
    about = package.metadata
    said = [one.split(" :: ")[-1] for one in about.get_all("Classifier") or () if one.startswith("License :: OSI")]
    free = (about.get("License") or "").strip().splitlines()
    return about.get("License-Expression") or ", ".join(said) or (free[0][:60] if free else "not told")


def pip_audit() -> Path:
    """The program, installed from its own lock where it is not yet."""
    program, stamp = HOME / "bin" / "pip-audit", HOME / "installed.lock"
    if not program.exists() or not stamp.exists() or stamp.read_bytes() != PIP_AUDIT_LOCK.read_bytes():
        say("installing pip-audit into .local/audit (only this once)")
        venv.EnvBuilder(with_pip=True, clear=True).create(HOME)
        install = [str(HOME / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*install, "--no-deps", "-r", str(PIP_AUDIT_LOCK)], check=True)
        stamp.write_bytes(PIP_AUDIT_LOCK.read_bytes())
    return program


def known(lock: str) -> bool:
    """Whether something is known of a package in this lock, or could not be asked."""
    say(f"asking what is known of {lock}")
    command = [str(pip_audit()), "--strict", "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run([*command, "-r", str(ROOT / lock)], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode == 0:
        return False
    if re.search(r"Found \d+ known vulnerabilit", done.stderr):
        print(done.stderr, end="", file=sys.stderr)
        return True
    last = (done.stderr.strip() or "pip-audit said nothing").splitlines()[-1]
    say(f"NOT AUDITED: {last[:300]}")
    say("pip-audit asks the Python package index, which a mirror or a firewall may not pass on:")
    say("run it where that is reached, or say --offline and do without")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offline", action="store_true", help="look only at what needs no network")
    arguments = parser.parse_args()
    bad = {lock: found for lock in LOCKS if (found := unpinned(lock))}
    for lock, names in bad.items():
        say(f"{lock}: without a version and its hashes: {', '.join(names)}")
    names = sorted(entries("requirements.lock"))
    if not bad:
        say(f"{len(names)} packages in requirements.lock, each with a version and hashes")
    for licence, packages in licences(names).items():
        say(f"{licence}: {', '.join(packages)}")
    if arguments.offline:
        say("not asked what is known of them (--offline)")
        return 1 if bad else 0
    found = [known(lock) for lock in LOCKS]
    return 1 if bad or any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
