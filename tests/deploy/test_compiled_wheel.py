"""The wheel with the compiled core: built without network, installed on its own, it decides what the pure one does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from deploy.compiled.build import missing_tool
from streamproc.core.compiled import MANIFEST, SOURCES

ROOT = Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILED = {f"streamproc/_compiled/{name}" for name in (f"core{SUFFIX}", f"scan{SUFFIX}", MANIFEST)}
GOLDEN = """
import json, sys
from pathlib import Path
import streamproc
from streamproc.core.compiled import core_kind
from streamproc.fingerprint.mask import scan
from streamproc.policy import load_policy
from tests.feeding import reported
traces = json.loads(Path(sys.argv[1]).read_text("utf-8"))
decided = [reported(trace["events"], load_policy(trace.get("preset", "standard"))) for trace in traces]
wrong = [t["title"] for t, d in zip(traces, decided) if [list(one) for one in d] != t["decisions"]]
print(json.dumps([streamproc.__file__, core_kind(), scan is not None, len(traces), wrong]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel is built from, with the leftovers of a build for another Python, and no .gitignore that hides it."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, root)
    hidden = shutil.ignore_patterns("__pycache__", "_compiled")
    for name in ("streamproc", "deploy/compiled"):
        shutil.copytree(ROOT / name, root / name, ignore=hidden)
    leftover = root / "streamproc" / "_compiled"
    leftover.mkdir()
    for name in ("core.cpython-27-x.so", f"core{SUFFIX}", MANIFEST):
        (leftover / name).write_text("{}")
    return root


def built(tree: Path, folder: Path, native: str, **settings: str) -> Path:
    environment = os.environ | {"STREAMPROC_BUILD_NATIVE": native} | settings
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := missing_tool():
        pytest.skip(f"no compiled wheel can be built on this machine: {missing}")
    # Optimizing takes two thirds of the time, and what it makes is tested elsewhere.
    compiler = tmp_path_factory.mktemp("bin") / "cc"
    real = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    compiler.write_text(f'#!/bin/sh\nexec {real} "$@" -O0\n')
    compiler.chmod(0o755)
    return built(tree, tmp_path_factory.mktemp("dist"), "1", CC=str(compiler))


def test_without_the_variable_it_is_pure_whatever_the_checkout_contains(tree: Path, tmp_path: Path) -> None:
    pure = built(tree, tmp_path, "")

    assert pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(pure).namelist() if "_compiled/" in name or name.endswith(".so")]


def test_an_unknown_value_of_the_variable_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"STREAMPROC_BUILD_NATIVE is 'yes'\. Set it to 1"):
        built(tree, tmp_path, "yes")


@pytest.mark.long
def test_it_is_for_this_python_and_platform(wheel: Path) -> None:
    tags = parse_wheel_filename(wheel.name)[3]

    assert tags & set(sys_tags())
    assert {tag.abi for tag in tags} == {f"cp{sys.version_info.major}{sys.version_info.minor}"}
    assert "Root-Is-Purelib: false" in zipfile.ZipFile(wheel).read(f"{info(wheel)}/WHEEL").decode()


def info(wheel: Path) -> str:
    return "-".join(wheel.name.split("-")[:2]) + ".dist-info"


@pytest.mark.long
def test_it_holds_the_build_and_every_source_that_its_hash_covers(wheel: Path, tree: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {name for name in names if "_compiled/" in name or name.endswith((".so", ".c"))} == COMPILED
    for pattern in SOURCES:
        files = [str(file.relative_to(tree)) for file in (tree / "streamproc").glob(pattern)]
        assert files, pattern
        assert set(files) <= names


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, capture_output=True)
    return target


@pytest.mark.long
@pytest.mark.parametrize("core", ["compiled", "python"])
@pytest.mark.parametrize("traces", ["stuck", "boards"])
def test_installed_it_is_used_and_decides_as_pinned(installed: Path, tmp_path: Path, core: str, traces: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(installed), str(ROOT)])
    if core == "python":
        environment["STREAMPROC_CORE"] = core
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", GOLDEN, str(ROOT / f"tests/golden/{traces}.json")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    file, used, scans, count, wrong = json.loads(done.stdout)
    assert Path(file).is_relative_to(installed)
    assert (used, scans) == (core, core == "compiled")
    assert count >= 3
    assert wrong == []


def test_cibuildwheel_builds_every_supported_python_compiled_and_tests_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheels = project["tool"]["cibuildwheel"]
    named = [one.rpartition(" ")[2] for one in project["project"]["classifiers"] if ":: 3." in one]

    assert wheels["build"] == [f"cp{version.replace('.', '')}-*" for version in named]
    assert wheels["environment"] == {"STREAMPROC_BUILD_NATIVE": "1"}
    assert wheels["linux"]["archs"] == ["x86_64", "aarch64"]
    assert "core_kind() == 'compiled'" in wheels["test-command"]
    assert "macos" in wheels


def test_the_hook_asks_for_cython_for_a_compiled_wheel_only(tree: Path) -> None:
    asked = "from hatchling.build import get_requires_for_build_wheel as w; print(*w(), sep='\\n')"
    found = {}
    for native in ("0", "1"):
        environment = os.environ | {"STREAMPROC_BUILD_NATIVE": native}
        done = subprocess.run(
            [sys.executable, "-c", asked], cwd=tree, env=environment, capture_output=True, text=True, check=True
        )
        found[native] = {Requirement(line).name for line in done.stdout.split("\n") if line}

    assert found == {"0": set(), "1": {"cython", "setuptools", "msgspec", "orjson", "pydantic", "xxhash"}}
