"""Every budget that can be declared is enforced by a detector that says so."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamproc import detectors
from streamproc.detectors import MODULES
from streamproc.model.budgets import BUDGETS
from streamproc.monitor import Monitor
from tests.syntax import syntax_of

if TYPE_CHECKING:
    from types import ModuleType

NAMES = {budget.name for budget in BUDGETS}
FOLDER = Path(detectors.__file__).parent


def declared_by(module: ModuleType) -> set[str]:
    """Return the budgets that a detector declares."""
    return set(getattr(module.DETECTOR, "budgets", ()))


def read_by(module: ModuleType) -> set[str]:
    """Return the budgets that the functions of a detector's file name."""
    tree = syntax_of((FOLDER / f"{module.__name__.rpartition('.')[2]}.py").read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    parts = [part for function in functions for part in ast.walk(function)]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)} & NAMES


@pytest.mark.parametrize("budget", sorted(NAMES))
def test_every_budget_has_a_detector(budget: str) -> None:
    assert [module.DETECTOR.code for module in MODULES if budget in declared_by(module)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.DETECTOR.code)
def test_a_detector_declares_the_budgets_that_it_reads(module: ModuleType) -> None:
    assert read_by(module) <= declared_by(module) <= NAMES


@pytest.mark.parametrize(("used_ms", "words"), [(1_001, "1.001 of 1 s"), (1_100, "1.1 of 1 s"), (61_000, "61 of 1 s")])
def test_a_message_shows_by_how_much_a_time_is_exceeded(used_ms: int, words: str) -> None:
    monitor = Monitor()
    monitor.feed({"run_id": "r", "type": "run.started", "budgets": {"maxRuntimeMsPerNode": 1_000}})
    [halt] = monitor.feed({"run_id": "r", "node": "a", "output": "x", "usage": {"duration_ms": used_ms}})
    assert halt.message == f"a has exceeded its budget: {words} (declared by the run)."
