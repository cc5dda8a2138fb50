"""The lock files: complete, hashed, and without package hosts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TABLES["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = {
    "requirements.lock": [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)],
    "requirements-runtime.lock": [*PROJECT["dependencies"], *EXTRAS["build"], *EXTRAS["compile"]],
    "benchmarks/peers.lock": [
        line.partition("  #")[0]
        for line in (ROOT / "benchmarks" / "peers.in").read_text().splitlines()
        if line and not line.startswith("#")
    ],
    "tests/fuzz/atheris.lock": [
        line
        for line in (ROOT / "tests" / "fuzz" / "atheris.in").read_text().splitlines()
        if line and not line.startswith("#")
    ],
    "requirements-audit.lock": TABLES["dependency-groups"]["audit"],
}


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / lock).read_text()
    return {canonicalize_name(name): pin for name, pin in re.findall(r"^(\S+?)==(\S+)", text, re.MULTILINE)}


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_satisfies_pyproject(lock: str) -> None:
    pinned = pins(lock)
    wanted = [Requirement(line) for line in LOCKS[lock] if not line.startswith("streamproc[")]
    stale = [str(one) for one in wanted if pinned.get(canonicalize_name(one.name), "") not in one.specifier]
    assert not stale, f"make lock: {stale}"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_hashes_and_none_has_a_url(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|--(extra-)?index-url|--find-links", text)


def test_the_image_installs_the_tested_versions() -> None:
    assert pins("requirements-runtime.lock").items() <= pins("requirements.lock").items()
