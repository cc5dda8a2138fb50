"""A compiled core is used if it matches the sources and this Python; otherwise it is ignored with a reason."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from streamproc.core.compiled import MANIFEST, CompiledModules, abi, activate, core_kind, sources_hash

ENGINE = "streamproc.core.engine"


def build(folder: Path, **changed: Any) -> Path:
    made = {"abi": abi(), "sources": sources_hash(), "layouts": "none.so", "modules": {}, "fields": {}} | changed
    (folder / MANIFEST).write_text(json.dumps(made))
    return folder


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sources": "0"}, "the sources have changed since it was built"),
        ({"abi": ".cpython-27.so"}, r"it was built for another Python \(\.cpython-27\.so"),
        ({}, "the build cannot be read"),  # the module that reads memory layouts is missing
        ({"abi": None, "sources": None}, "another Python"),
    ],
)
def test_a_build_that_does_not_match_is_ignored_with_one_warning(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    finder = CompiledModules(build(tmp_path, **changed, modules={ENGINE: "core/engine.so"}), required=False)

    with pytest.warns(RuntimeWarning, match=reason) as warnings:
        assert finder.find_spec(ENGINE) is None
    assert finder.find_spec(ENGINE) is None
    assert len(warnings) == 1
    assert "`make compile`" in str(warnings[0].message)


def test_an_unfinished_build_is_ignored(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="the build cannot be read"):
        assert CompiledModules(tmp_path, required=False).find_spec(ENGINE) is None


def test_a_required_build_that_does_not_match_fails_the_import(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"STREAMPROC_CORE=compiled.*the sources have changed"):
        CompiledModules(build(tmp_path, sources="0", modules={ENGINE: "e.so"}), required=True).find_spec(ENGINE)


def test_a_module_that_is_not_compiled_is_found_without_checking_the_build(tmp_path: Path) -> None:
    """The check would import it, and it would exist twice."""
    finder = CompiledModules(build(tmp_path, sources="0", modules={ENGINE: "core/engine.so"}), required=True)

    assert finder.find_spec("streamproc.core.run_state") is None


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
    source = tmp_path / "core" / "run.py"
    source.write_text("A = 1\n")
    before = sources_hash(tmp_path)
    source.write_text("A = 2\n")
    changed = sources_hash(tmp_path)
    source.rename(source.with_name("runs.py"))

    assert len({before, changed, sources_hash(tmp_path)}) == 3


def test_tests_run_on_the_core_named_in_the_environment() -> None:
    """Pure Python, unless `make test-compiled` names the other one."""
    assert core_kind() == os.environ["STREAMPROC_CORE"]
