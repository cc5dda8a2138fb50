"""A compiled core is used where it fits these sources and this Python, and refused with a reason where it does not."""

from __future__ import annotations

import json
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
        ({"sources": "0"}, "the sources have changed since it was made"),
        ({"abi": ".cpython-27.so"}, r"it was made for another Python \(\.cpython-27\.so"),
        ({}, "it cannot be read"),  # what looks at layouts is missing
        ({"abi": None, "sources": None}, "another Python"),
    ],
)
def test_a_build_that_does_not_fit_is_not_used_and_that_is_said_once(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    finder = CompiledModules(build(tmp_path, **changed, modules={ENGINE: "core/engine.so"}), required=False)

    with pytest.warns(RuntimeWarning, match=reason) as told:
        assert finder.find_spec(ENGINE) is None
    assert finder.find_spec(ENGINE) is None
    assert len(told) == 1
    assert "`make compile`" in str(told[0].message)


def test_a_build_that_was_not_finished_is_not_used(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="it cannot be read"):
        assert CompiledModules(tmp_path, required=False).find_spec(ENGINE) is None


def test_what_must_be_compiled_and_is_not_ends_the_import(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"STREAMPROC_CORE=compiled.*the sources have changed"):
        CompiledModules(build(tmp_path, sources="0", modules={ENGINE: "e.so"}), required=True).find_spec(ENGINE)


def test_a_module_that_is_not_compiled_is_found_without_a_look_at_the_others(tmp_path: Path) -> None:
    """That look would import it, and then there were two of it."""
    finder = CompiledModules(build(tmp_path, sources="0", modules={ENGINE: "core/engine.so"}), required=True)

    assert finder.find_spec("streamproc.core.run_state") is None


def test_modules_of_others_are_none_of_its_business(tmp_path: Path) -> None:
    assert CompiledModules(tmp_path, required=True).find_spec("streamproc.worker.app") is None


@pytest.mark.parametrize(("wanted", "there", "used"), [("", True, True), ("", False, False), ("python", True, False)])
def test_the_environment_can_leave_a_build_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, there: bool, used: bool
) -> None:
    monkeypatch.setenv("STREAMPROC_CORE", wanted)
    monkeypatch.setattr(sys, "meta_path", [])

    activate(tmp_path if there else tmp_path / "nowhere")

    assert bool(sys.meta_path) is used


def test_any_change_of_a_source_is_another_hash(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    source = tmp_path / "core" / "run.py"
    source.write_text("A = 1\n")
    before = sources_hash(tmp_path)
    source.write_text("A = 2\n")
    changed = sources_hash(tmp_path)
    source.rename(source.with_name("runs.py"))

    assert len({before, changed, sources_hash(tmp_path)}) == 3


def test_tests_run_on_pure_python() -> None:
    assert core_kind() == "python"
