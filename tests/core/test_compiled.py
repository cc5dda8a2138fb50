"""A compiled core is used if it matches the sources and this Python; otherwise it is ignored with a reason."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_128_hexdigest

from streamproc.core.compiled import (
    CORE,
    MANIFEST,
    PACKAGE,
    PARTS,
    SOURCES,
    CompiledModules,
    abi,
    activate,
    core_kind,
    sources_hash,
)
from tests.syntax import syntax_of

ENGINE = "streamproc.core.engine"


def build(folder: Path, **changed: Any) -> Path:
    """A build of these sources for this Python; its core is a text, which no linker takes."""
    core = folder / f"core{abi()}"
    core.write_text("not a library")
    files = {core.name: xxh3_128_hexdigest(core.read_bytes())}
    (folder / MANIFEST).write_text(json.dumps({"abi": abi(), "sources": sources_hash(), "files": files} | changed))
    return folder


@pytest.fixture
def no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has imported nothing of the core."""
    monkeypatch.delitem(sys.modules, CORE, raising=False)


@pytest.mark.usefixtures("no_core")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sources": "0"}, "the sources have changed since it was built"),
        ({"abi": ".cpython-27.so"}, r"it was built for another Python \(\.cpython-27\.so"),
        ({"abi": None, "sources": None}, "another Python"),
        ({"files": {f"core{abi()}": "0"}}, r"core\..* has changed since it was built"),  # a copy that was cut short
        ({"files": {"gone.so": "0"}}, "the build cannot be read"),
        ({"files": None}, "the build cannot be read"),
        ({}, "it cannot be loaded"),
    ],
)
def test_a_build_that_does_not_match_is_ignored_with_one_warning(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    finder = CompiledModules(build(tmp_path, **changed), required=False)

    with pytest.warns(RuntimeWarning, match=reason) as warnings:
        assert finder.find_spec(ENGINE) is None
    assert finder.find_spec(ENGINE) is None
    assert finder.find_spec("streamproc.core.scope") is None
    assert len(warnings) == 1
    assert "`make compile`" in str(warnings[0].message)


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"abi": 3', "\\"])
def test_a_manifest_that_is_none_is_ignored(tmp_path: Path, manifest: str) -> None:
    (build(tmp_path) / MANIFEST).write_text(manifest)

    with pytest.warns(RuntimeWarning, match="the build cannot be read"):
        assert CompiledModules(tmp_path, required=False).find_spec(ENGINE) is None


def test_an_unfinished_build_is_ignored(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="the build cannot be read"):
        assert CompiledModules(tmp_path, required=False).find_spec(ENGINE) is None


@pytest.mark.usefixtures("no_core")
@pytest.mark.parametrize(("changed", "reason"), [({"sources": "0"}, "the sources have changed"), ({}, "be loaded")])
def test_a_required_build_that_does_not_match_fails_the_import(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    finder = CompiledModules(build(tmp_path, **changed), required=True)

    for _ in range(2):
        with pytest.raises(ImportError, match=rf"STREAMPROC_CORE=compiled.*{reason}"):
            finder.find_spec(ENGINE)


@pytest.mark.usefixtures("no_core")
def test_a_process_whose_build_is_refused_runs_in_pure_python(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, warnings; warnings.simplefilter('ignore');"
        "from streamproc.core import compiled; sys.meta_path[:] = [m for m in sys.meta_path if type(m).__name__ != "
        "'CompiledModules']; compiled.activate(pathlib.Path(sys.argv[1]));"
        "import streamproc.core.scope, streamproc.monitor; print(compiled.core_kind(), compiled.build_fault())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "STREAMPROC_CORE"}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(build(tmp_path))], env=environment, capture_output=True, text=True, check=True
    )

    assert ran.stdout.startswith("python it cannot be loaded")


def test_modules_outside_the_core_are_not_looked_up(tmp_path: Path) -> None:
    assert CompiledModules(tmp_path, required=True).find_spec("streamproc.worker.app") is None


@pytest.mark.parametrize(("wanted", "there", "used"), [("", True, True), ("", False, False), ("python", True, False)])
def test_the_environment_can_disable_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, there: bool, used: bool
) -> None:
    monkeypatch.setenv("STREAMPROC_CORE", wanted)
    monkeypatch.setattr(sys, "meta_path", [])

    activate(tmp_path if there else tmp_path / "nowhere")

    assert bool(sys.meta_path) is used


def test_any_change_of_a_source_changes_the_hash(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    source = tmp_path / "core" / "run.pxi"
    source.write_text("A = 1\n")
    before = sources_hash(tmp_path)
    source.write_text("A = 2\n")
    changed = sources_hash(tmp_path)
    source.rename(source.with_name("runs.pxi"))

    assert len({before, changed, sources_hash(tmp_path)}) == 3


def test_the_hash_covers_every_number_that_is_compiled_in() -> None:
    """Constants of other modules become numbers, too: a change of one of them must make a build outdated."""
    covered = {file for pattern in SOURCES for file in PACKAGE.glob(pattern)}
    for part in PARTS:
        if part == "streamproc.core.records":
            continue  # `records.pxi` takes its place
        source = (PACKAGE.parent / part.replace(".", "/")).with_suffix(".py")
        assert source in covered
        for node in ast.walk(syntax_of(source.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamproc."):
                imported = import_module(str(node.module))
                names = [name.name for name in node.names if name.name.isupper()]
                if any(type(getattr(imported, name)) is int for name in names):
                    home = (PACKAGE.parent / str(node.module).replace(".", "/")).with_suffix(".py")
                    assert home in covered, f"{part} takes a number of {names} from {node.module}"


def test_tests_run_on_the_core_named_in_the_environment() -> None:
    """Pure Python, unless `make test-compiled` names the other one."""
    assert core_kind() == os.environ["STREAMPROC_CORE"]
