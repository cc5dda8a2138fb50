"""The examples of every detector run as expected, and its page has all sections."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from streamproc.core import kind
from streamproc.core.signals.novelty import Gate
from streamproc.detectors import BY_CODE, MODULES
from streamproc.monitor import Monitor

if TYPE_CHECKING:
    from types import ModuleType

    from streamproc.detectors.base import Example
    from streamproc.model.controls import ControlEvent

CODES = sorted(BY_CODE)
SECTIONS = ("Sees", "Why", "False alarms", "Tuning", "Reference")
RANK = {"info": 0, "warn": 1, "halt": 2}
EXAMPLES_MIN = 2
TREES = {code for code in CODES if code.startswith("TREE")}  # runs of one session, several in an example
LEVELLED = ("BUDGET008", "BUDGET009", "BUDGET010")  # all levels, including the last, are `budget.level` events
NOT_OF_TASKS = ("BUDGET009", "STALL011")
BOARD = {code for code in CODES if code not in NOT_OF_TASKS and BY_CODE[code].DETECTOR.kinds & kind.BOARD}
BETWEEN_TURNS = (
    "STALL007",
    "STALL009",
    "LOOP014",
    "TREE006",
)  # about events after a turn, of which several may follow one turn
FORCING = {"TASK001", "TASK008", "ERROR002", "STALL005"}  # these name the new status of the task
BLOCKED = "transition.blocked"
ADVICE: dict[str, tuple[str | None, ...]] = {  # actions of warnings
    "INFRA001": ("pause",), "BUDGET005": ("warn", "force_synthesis"), "OPERATOR002": ("ask_human",),
    "OPERATOR003": (None,), "BUDGET008": ("warn", "done_partial", "ask_human", "force_synthesis"),
    "BUDGET009": ("warn", "done_partial"),
}  # fmt: skip
OF_HALTED_RUNS = {
    "OPERATOR002",
    "OPERATOR003",
    "TREE007",
    "TREE008",
}  # these need a run that another detector has halted
ONLY_WARN = {"BUDGET011", "TREE007"}


def examples(kind: str) -> list[object]:
    """Return every example of a kind with its detector's code."""
    return [
        pytest.param(code, example, id=f"{code}-{example.title.replace(' ', '_')}")
        for code in CODES
        for example in getattr(BY_CODE[code], kind)
    ]


def controls(example: Example) -> list[ControlEvent]:
    monitor = Monitor(example.policy)
    return [control for turn in example.turns for control in monitor.feed({"run_id": "r"} | turn)]


def turn_of(control: ControlEvent) -> int:
    assert control.trigger is not None
    assert control.trigger.turn is not None
    return control.trigger.turn


@pytest.mark.parametrize(("code", "example"), examples("HEALTHY"))
def test_a_healthy_example_is_silent(code: str, example: Example) -> None:
    reported = controls(example)
    assert [control for control in reported if control.code == code] == []
    assert code in OF_HALTED_RUNS or [control for control in reported if control.halts] == []


@pytest.mark.parametrize(("code", "example"), examples("STUCK"))
def test_a_stuck_example_gets_its_decision_at_its_turn(code: str, example: Example) -> None:
    reported = controls(example)
    own = [(control.severity, turn_of(control)) for control in reported if control.code == code]
    assert own[-1] == (example.severity, example.at)
    # Besides its first finding, a rule reports refused moves, and a chain that stays blocked.
    most = RANK[example.severity or ""] - (code not in BOARD | TREES)
    assert all(RANK[severity] <= most for severity, _ in own[:-1])
    halts = [control.code for control in reported if control.halts and turn_of(control) < (example.at or 0)]
    assert halts == [] or code in OF_HALTED_RUNS


@pytest.mark.parametrize(("code", "example"), examples("STUCK"))
def test_a_decision_has_every_field_that_the_contract_promises(code: str, example: Example) -> None:
    for control in controls(example):
        assert control.message
        assert "\n" not in control.message
        assert control.policy is not None
        assert control.policy.name == ("policy" if example.policy else "standard")
        assert control.evidence is not None
        if control.code in BOARD and control.code != "STALL006":
            assert control.action in ("warn", "ask_human")
            assert (control.severity, control.halt_reason, control.onset) == ("warn", None, None)
            assert (control.terminal_status is not None) == (control.code in FORCING and control.type != BLOCKED)
            assert control.evidence.kind == BY_CODE[control.code].DETECTOR.name
            assert control.task_id or control.code == "TASK003"
            continue
        if not control.halts:
            escalated = "escalated" if control.code == "OPERATOR002" or control.type == "task.escalated" else None
            stopped = "budget_exceeded" if control.evidence.rung == "hard_stop" else None  # the task, not the run
            assert (control.halt_reason, control.terminal_status) == (None, escalated or stopped)
            assert control.action in ADVICE.get(control.code, ("warn",))
            continue
        assert control.type == (
            control.type
            if control.code in TREES and control.type in ("budget.level", "delegation.rejected", "loop.halted")
            else "budget.level"
            if control.code in LEVELLED
            else "run.timed_out"
            if control.code == "BUDGET006"
            else "loop.halted"
        )
        assert control.halt_reason is not None
        assert control.terminal_status is not None
        assert control.suggested_actions[0] == control.action
        assert len(control.suggested_actions) == len(set(control.suggested_actions))
        if control.halt_reason not in ("budget_exceeded", "user_stop"):
            # A graph is wrong before the first turn, and a cycle of the board is not a turn.
            if control.code not in ("GRAPH001", "STALL006"):
                began_before = control.code not in BETWEEN_TURNS
                assert control.onset is not None
                assert 0 <= control.onset <= turn_of(control) - began_before
            assert control.evidence.kind == BY_CODE[control.code].DETECTOR.name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.DETECTOR.code)
def test_a_detector_has_examples_of_both_kinds(module: ModuleType) -> None:
    for examples in (module.HEALTHY, module.STUCK):
        assert len(examples) >= EXAMPLES_MIN
        assert len({example.title for example in examples}) == len(examples)
    assert all(example.severity is None for example in module.HEALTHY)
    assert all(example.severity in RANK for example in module.STUCK)
    can_halt = not fields(module.DETECTOR.Limits) or any(
        "halt" in limit.name and limit.default for limit in fields(module.DETECTOR.Limits)
    )
    by_board = module.DETECTOR.code.startswith("TASK")
    by_budget = module.DETECTOR.code.startswith(("BUDGET", "TREE")) and module.DETECTOR.code not in ONLY_WARN
    may_halt = (can_halt and not by_board and module.DETECTOR.code not in ONLY_WARN) or by_budget
    assert any(example.severity == "halt" for example in module.STUCK) == may_halt


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.DETECTOR.code)
def test_a_detectors_page_has_all_its_sections(module: ModuleType) -> None:
    page = module.__doc__ or ""
    assert page.startswith(f"{module.DETECTOR.code} ")
    found = re.findall(r"^([A-Z][a-z ]+): ", page, re.MULTILINE)
    assert tuple(found) == SECTIONS
    parts = re.split(r"^[A-Z][a-z ]+: ", page, flags=re.MULTILINE)
    assert all(len(part.strip()) > 10 for part in parts)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.DETECTOR.code)
def test_every_limit_is_a_whole_number_or_a_choice_with_a_default(module: ModuleType) -> None:
    limits = module.DETECTOR.Limits()
    assert all(type(getattr(limits, field.name)) in (int, Gate) for field in fields(module.DETECTOR.Limits))


def test_codes_have_the_form_of_the_catalogue_and_are_unique() -> None:
    assert len(BY_CODE) == len(MODULES)
    assert all(
        re.fullmatch(r"(LOOP|STALL|ERROR|BUDGET|CLAIM|GRAPH|INFRA|TASK|OPERATOR|TREE)\d{3}", code) for code in CODES
    )
    assert len({module.DETECTOR.name for module in MODULES}) == len(MODULES)


def test_a_detector_keeps_no_state() -> None:
    for module in MODULES:
        assert getattr(module.DETECTOR, "__dict__", {}) == {}  # a compiled one cannot have any
