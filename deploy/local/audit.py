"""Audits the lock files: versions and hashes, licences, software bill of materials, known vulnerabilities.

    .venv/bin/python deploy/local/audit.py [--offline]

All but the last need no network. The last asks the Python package index through pip-audit, which is installed
from ``requirements-audit.lock`` into ``.local/audit``. A package that the index does not know fails the audit: a mirror
that answers "not found" to every request must not pass.

Exit 0: no findings; 1: findings, or a package that could not be audited.
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

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for `deploy`, when this file runs as a script

from deploy.local import sbom

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".local" / "audit"
LOCKS = ("requirements.lock", "requirements-audit.lock")  # requirements-runtime.lock is a subset of the first
PIP_AUDIT_LOCK = ROOT / "requirements-audit.lock"


def say(line: str) -> None:
    print(f"audit: {line}", flush=True)


def entries(lock: str) -> dict[str, str]:
    """Return the entries of a lock file by package name."""
    text = (ROOT / lock).read_text().strip()
    return {re.split(r"[=<>!~ ;\[]", entry)[0]: entry for entry in re.split(r"\n(?=\S)", text)}


def unpinned(lock: str) -> list[str]:
    """Return the packages without an exact version and hashes."""
    pinned = re.compile(r"[\w.\-\[\]]+==\S+.*--hash=sha256:[0-9a-f]{64}", re.DOTALL)
    return [name for name, entry in entries(lock).items() if not pinned.match(entry)]


def licences(names: list[str]) -> dict[str, list[str]]:
    """Return the installed packages by licence."""
    found = defaultdict(list)
    for name in names:
        try:
            found[licence_of(distribution(name))].append(name)
        except PackageNotFoundError:  # for another platform, or from another lock
            continue
    return dict(sorted(found.items()))


def licence_of(package: Distribution) -> str:
    """Return the licence that a package declares: an SPDX expression, a classifier, or a line of text."""
    about = package.metadata
    lines = about.get_all("Classifier") or ()
    classifiers = [line.split(" :: ")[-1] for line in lines if line.startswith("License :: OSI")]
    free = (about.get("License") or "").strip().splitlines()
    return about.get("License-Expression") or ", ".join(classifiers) or (free[0][:60] if free else "not declared")


def pip_audit() -> Path:
    """Return the path of pip-audit; install it from its own lock if necessary."""
    program, stamp = HOME / "bin" / "pip-audit", HOME / "installed.lock"
    if not program.exists() or not stamp.exists() or stamp.read_bytes() != PIP_AUDIT_LOCK.read_bytes():
        say("installing pip-audit into .local/audit (first run only)")
        venv.EnvBuilder(with_pip=True, clear=True).create(HOME)
        install = [str(HOME / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*install, "--no-deps", "-r", str(PIP_AUDIT_LOCK)], check=True)
        stamp.write_bytes(PIP_AUDIT_LOCK.read_bytes())
    return program


def vulnerable(lock: str) -> bool:
    """Return whether a package in this lock has known vulnerabilities or could not be audited."""
    say(f"checking {lock} for known vulnerabilities")
    command = [str(pip_audit()), "--strict", "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run([*command, "-r", str(ROOT / lock)], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode == 0:
        return False
    if re.search(r"Found \d+ known vulnerabilit", done.stderr):
        print(done.stderr, end="", file=sys.stderr)
        return True
    last = (done.stderr.strip() or "pip-audit printed nothing").splitlines()[-1]
    say(f"NOT AUDITED: {last[:300]}")
    say("pip-audit asks the Python package index, which a mirror or a firewall may block.")
    say("Run the audit where the index can be reached, or skip this check with --offline.")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offline", action="store_true", help="skip the check that needs the network")
    arguments = parser.parse_args()
    bad = {lock: packages for lock in LOCKS if (packages := unpinned(lock))}
    for lock, packages in bad.items():
        say(f"{lock}: without an exact version and hashes: {', '.join(packages)}")
    names = sorted(entries("requirements.lock"))
    if not bad:
        say(f"{len(names)} packages in requirements.lock, each with a version and hashes")
    for licence, packages in licences(names).items():
        say(f"{licence}: {', '.join(packages)}")
    say(f"software bill of materials: {sbom.FILE.relative_to(ROOT)}, {sbom.write()} components")
    if arguments.offline:
        say("known vulnerabilities: not checked (--offline)")
        return 1 if bad else 0
    found = [vulnerable(lock) for lock in LOCKS]
    return 1 if bad or any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
