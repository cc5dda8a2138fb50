"""The compiled core compared with pure Python (`make test-compiled`). It needs a compiler, so `make test` skips it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from streamproc.core.compiled import FOLDER, MANIFEST, CompiledModules

ROOT: Final = Path(__file__).parents[2]


def lines_of(core: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.compiled.verdicts"], cwd=ROOT, env=os.environ | {"STREAMPROC_CORE": core},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return result.stdout.splitlines()


def test_both_cores_give_the_same_decisions_and_states_byte_for_byte() -> None:
    python, compiled = lines_of("python"), lines_of("compiled")

    assert (python[0], compiled[0]) == ("python", "compiled")
    assert len(python) > 900
    assert [ours for ours, theirs in zip(python[1:], compiled[1:], strict=True) if ours != theirs] == []


def test_a_build_with_another_memory_layout_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "_compiled"
    shutil.copytree(FOLDER, folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["fields"]["streamproc.model.wire.Turn"].reverse()
    (folder / MANIFEST).write_text(json.dumps(manifest))

    with pytest.warns(RuntimeWarning, match="the memory layout of Turn differs"):
        assert CompiledModules(folder, required=False).find_spec("streamproc.core.engine") is None


def test_every_module_of_the_build_is_imported_from_it() -> None:
    code = (
        "import json, sys, importlib; from streamproc.core.compiled import FOLDER, MANIFEST;"
        "names = json.loads((FOLDER / MANIFEST).read_text())['modules'];"
        "print([n for n in names if importlib.import_module(n).__file__.endswith('.py')])"
    )
    environment = os.environ | {"STREAMPROC_CORE": "compiled"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("first", ["run_state", "board.state", "decision", "engine"])
def test_each_type_exists_once_whichever_module_is_imported_first(first: str) -> None:
    code = (
        f"import streamproc.core.{first}, streamproc.core.engine, streamproc.core.run_state as run, sys;"
        "from streamproc.core.board.state import Board;"
        "from streamproc.core.board.change import board_of; from streamproc.core.board.config import NO_BOARD;"
        "state = run.load(run.dump(run.RunState(board=Board(NO_BOARD.tag))));"
        "assert board_of(state, NO_BOARD) is state.board"
    )
    environment = os.environ | {"STREAMPROC_CORE": "compiled"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
