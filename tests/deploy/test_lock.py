"""The lock files: complete, hashed, and without package hosts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TABLES["project"]
EXTRAS = PROJECT["optional-dependencies"]
FRAMEWORKS = sorted(lock.parent.name for lock in (ROOT / "tests" / "frameworks").glob("*/requirements.lock"))


def extra(name: str) -> Iterator[str]:
    """Yield the requirements of an extra, with those of the extras that it names."""
    for line in EXTRAS[name]:
        if own := re.match(r"streamproc\[(.+)\]", line):
            for other in own[1].split(","):
                yield from extra(other)
        else:
            yield line


def listed(path: str) -> list[str]:
    """Return the requirements of a file, if there is one."""
    lines = (ROOT / path).read_text().splitlines() if (ROOT / path).exists() else []
    return [line.partition("  #")[0] for line in lines if line and not line.startswith("#")]


LOCKS = {
    "requirements.lock": [*PROJECT["dependencies"], *extra("dev")],
    "requirements-runtime.lock": [*PROJECT["dependencies"], *EXTRAS["build"], *EXTRAS["compile"]],
    "benchmarks/peers.lock": listed("benchmarks/peers.in"),
    "tests/fuzz/atheris.lock": listed("tests/fuzz/atheris.in"),
    "requirements-audit.lock": TABLES["dependency-groups"]["audit"],
} | {
    f"tests/frameworks/{name}/requirements.lock": [
        *PROJECT["dependencies"],
        *extra(name),
        *listed("tests/frameworks/requirements.in"),
        *listed(f"tests/frameworks/{name}/requirements.in"),
    ]
    for name in FRAMEWORKS
}


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / lock).read_text()
    return {canonicalize_name(name): pin for name, pin in re.findall(r"^(\S+?)==(\S+)", text, re.MULTILINE)}


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_satisfies_pyproject(lock: str) -> None:
    pinned = pins(lock)
    wanted = [Requirement(line) for line in LOCKS[lock]]
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
