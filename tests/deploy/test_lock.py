"""The lock files: complete, hashed, and without package hosts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TABLES["project"]
EXTRAS = PROJECT["optional-dependencies"]
FRAMEWORKS = sorted(lock.parent.name for lock in (ROOT / "tests" / "frameworks").glob("*/requirements.lock"))


def with_extras(*extras: str) -> list[str]:
    """Return the requirements of the project with these extras, and with those that they name in turn."""
    found, todo = list(PROJECT["dependencies"]), list(extras)
    while todo:
        for line in EXTRAS[todo.pop()]:
            named = Requirement(line)
            if named.name == PROJECT["name"]:
                todo += named.extras
            else:
                found.append(line)
    return found


def listed(path: str) -> list[str]:
    """Return the requirements of a file, if there is one."""
    lines = (ROOT / path).read_text().splitlines() if (ROOT / path).exists() else []
    return [line.partition("  #")[0] for line in lines if line and not line.startswith("#")]


LOCKS = {
    "requirements.lock": with_extras("dev"),
    "requirements-runtime.lock": with_extras("build", "otel", "page", "rocksdb"),
    "benchmarks/peers.lock": listed("benchmarks/peers.in"),
    "tests/fuzz/atheris.lock": [
        line
        for line in (ROOT / "tests" / "fuzz" / "atheris.in").read_text().splitlines()
        if line and not line.startswith("#")
    ],
    "requirements-audit.lock": TABLES["dependency-groups"]["audit"],
} | {
    f"tests/frameworks/{name}/requirements.lock": [
        *with_extras(name),
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


IMPORTS = """
import sys
import streamproc.cli.otel, streamproc.otel.process, streamproc.otel.span_topic
from streamproc.otel import read_spans
list(read_spans(b"", "protobuf")), list(read_spans(b'{"resourceSpans": []}', "json"))
print(*sorted(name for name, module in sys.modules.items() if getattr(module, "__file__", None)))
"""


def test_the_image_has_what_streamproc_otel_imports() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True, timeout=60)
    homes = packages_distributions()
    tops = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names - {"streamproc"}
    # A namespace such as `opentelemetry` belongs to several packages; one of them must be locked.
    needed = {top: {canonicalize_name(one) for one in homes[top]} for top in tops if top in homes}
    assert {"aiohttp", "aiokafka", "google", "opentelemetry"} <= needed.keys()
    locked = pins("requirements-runtime.lock").keys()
    assert not {top: packages for top, packages in needed.items() if not packages & locked}
    assert {"opentelemetry-proto", "protobuf"} <= locked
