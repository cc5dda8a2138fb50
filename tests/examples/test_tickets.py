"""The tickets example: what each rule of the board does, and whom it is told to."""

from __future__ import annotations

import pytest

from tests.examples.playing import chapter, first_halts, printed, scanned, turn_of

NAME = "tickets"
HALTED = {
    "signals/repeated-tool-calls": ("LOOP003", 3),
    "signals/identical-output": ("LOOP001", 1),
    "signals/zero-progress-cycle": ("STALL006", 0),
    "stop/by-a-person": ("OPERATOR001", 0),
}
TOLD = {
    "signals/retry-exhausted": [("ERROR002", "BILL-6", "loop.warning")],
    "signals/oscillating-state": [("TASK001", "BILL-7", "loop.warning"), ("TASK001", "BILL-7", "transition.blocked")],
    "signals/todo-stall": [("STALL005", "BILL-8", "loop.warning")],
    "signals/blocked-chain": [
        ("TASK002", "BILL-10", "loop.warning"),
        ("TASK002", "BILL-10", "notification"),
    ],
    "signals/max-tasks-per-cycle": [("TASK003", None, "delegation.rejected")] * 2,
    "signals/state-skip": [("TASK004", "BILL-14", "transition.blocked")],
    "signals/dod-noncompliance": [("TASK005", "BILL-15", "transition.blocked")] * 2,
    "signals/initialization-skip": [("TASK006", "MAIL-1", "transition.blocked")] * 2,
    "signals/uiux-gate-bypass": [("TASK007", "BILL-16", "transition.blocked")],
    "signals/validator-rejection-loop": [
        ("TASK008", "BILL-17", "task.escalated"),
        ("TASK008", "BILL-17", "transition.blocked"),
    ],
    "notify/three-failed-tasks": [("ERROR004", "BILL-21", "notification")],
}


def test_three_tickets_go_all_the_way_and_nothing_is_told() -> None:
    assert scanned(NAME)["healthy/three-tickets"] == []
    assert chapter(NAME, "healthy/three-tickets") == ["  nothing to tell"]


def test_these_runs_are_halted_and_no_others() -> None:
    halts = {run_id: (halt.code, turn_of(halt)) for run_id, halt in first_halts(NAME).items() if halt is not None}
    assert halts == HALTED


@pytest.mark.parametrize("run_id", TOLD)
def test_a_rule_of_the_board_is_told_of_its_task(run_id: str) -> None:
    assert [(one.code, one.task_id, one.type) for one in scanned(NAME)[run_id]] == TOLD[run_id]


def test_every_run_has_its_story() -> None:
    assert scanned(NAME).keys() == {"healthy/three-tickets", *HALTED, *TOLD}


@pytest.mark.parametrize(
    ("run_id", "line"),
    [
        ("signals/todo-stall", "STALL BILL-8 HIGH: "),
        ("signals/oscillating-state", "LOOP_DETECTED Backend/BILL-7 HIGH: "),
        ("signals/validator-rejection-loop", "ESCALATION Backend/BILL-17 CRITICAL: "),
        ("signals/identical-output", "LOOP_DETECTED Backend/BILL-5 HIGH: "),
        ("notify/three-failed-tasks", "FAILURE Backend/BILL-21 HIGH: "),
    ],
)
def test_people_are_told_with_agent_task_and_urgency(run_id: str, line: str) -> None:
    assert any(shown.startswith(f"       {line}") for shown in chapter(NAME, run_id))


def test_stop_pause_and_clear_are_obeyed() -> None:
    assert printed(NAME).endswith(
        "STOP_ALL\n"
        "  PAUSE: the fleet is paused by dana: deploy; agents finish the current turn, start nothing\n"
        "  STOP: the fleet is stopped by dana: wrong branch; agents stop now\n"
        "  CLEAR: the fleet is cleared by dana: branch reset; agents go on\n"
    )
