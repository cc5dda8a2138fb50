"""The tickets example: the effect of each rule of the board, and its notifications."""

from __future__ import annotations

import pytest

from tests.examples.playing import chapter, first_halts, printed, scanned, turn_of

NAME = "tickets"
HALTED = {
    "signals/repeated-tool-calls": ("LOOP003", 3), "signals/identical-output": ("LOOP001", 1),
    "signals/zero-progress-cycle": ("STALL006", 0), "tokens/ladder": ("BUDGET008", 4),
    "tokens/violation": ("BUDGET008", 1), "session/lead": ("BUDGET009", 0), "session/backend": ("BUDGET009", 5),
    "session/frontend": ("BUDGET009", 5), "stop/by-a-person": ("OPERATOR001", 0),
}  # fmt: skip
EXPECTED = {
    "signals/retry-exhausted": [("ERROR002", "BILL-6", "task.ended")],
    "signals/oscillating-state": [
        ("TASK001", "BILL-7", "task.ended"),
        *[("TASK001", "BILL-7", "transition.blocked")] * 6,
    ],
    "signals/todo-stall": [("STALL005", "BILL-8", "task.ended")],
    "signals/blocked-chain": [
        ("TASK002", "BILL-10", "loop.warning"),
        ("TASK002", "BILL-10", "notification"),
    ],
    "signals/max-tasks-per-cycle": [("TASK003", None, "delegation.rejected")] * 2,
    "signals/state-skip": [("TASK004", "BILL-14", "transition.blocked")],
    "signals/dod-noncompliance": [("TASK005", "BILL-15", "transition.blocked")] * 2,
    "signals/initialization-skip": [("TASK006", "MAIL-1", "transition.blocked")] * 2,
    "signals/uiux-gate-bypass": [
        ("TASK007", "BILL-16", "transition.blocked"),
        ("TASK007", "BILL-16", "decision.recorded"),
    ],
    "signals/validator-rejection-loop": [
        ("TASK008", "BILL-17", "task.escalated"),
        *[("TASK008", "BILL-17", "transition.blocked")] * 2,
    ],
    "notify/three-failed-tasks": [("ERROR004", "BILL-21", "notification")],
}


def test_three_tickets_reach_done_without_a_decision() -> None:
    assert scanned(NAME)["healthy/three-tickets"] == []
    assert chapter(NAME, "healthy/three-tickets") == ["  no decisions"]


def test_these_runs_are_halted_and_no_others() -> None:
    halts = {run_id: (halt.code, turn_of(halt)) for run_id, halt in first_halts(NAME).items() if halt is not None}
    assert halts == HALTED


@pytest.mark.parametrize("run_id", EXPECTED)
def test_a_rule_of_the_board_names_its_task(run_id: str) -> None:
    assert [(one.code, one.task_id, one.type) for one in scanned(NAME)[run_id]] == EXPECTED[run_id]


def test_every_run_has_its_story() -> None:
    assert scanned(NAME).keys() == {"healthy/three-tickets", *HALTED, *EXPECTED}


def test_the_levels_of_a_tasks_tokens() -> None:
    reported = scanned(NAME)["tokens/ladder"]
    rungs = [(one.severity, one.message.rpartition(", level ")[2].partition(":")[0]) for one in reported]
    assert rungs[:4] == [("warn", "WARNING"), ("warn", "RESTRICT"), ("warn", "URGENT"), ("halt", "HARD STOP")]
    violation = first_halts(NAME)["tokens/violation"]
    assert "VIOLATION" in violation.message
    assert (violation.evidence.used, violation.evidence.limit) == (107_000, 100_000)


@pytest.mark.parametrize("run_id", ["session/lead", "session/backend", "session/frontend"])
def test_every_run_of_a_session_gets_every_level(run_id: str) -> None:
    reported = [one for one in scanned(NAME)[run_id] if one.code == "BUDGET009"]
    used = [one.evidence.used for one in reported if one.evidence is not None and one.evidence.used]
    assert used == [720_000, 805_000, 975_000, 1_060_000]
    assert [one.severity for one in reported if one.evidence is not None and one.evidence.used] == [
        *["warn"] * 3,
        "halt",
    ]


def test_a_session_that_is_nearly_spent_takes_no_new_work() -> None:
    assert any(one.type == "delegation.rejected" for one in scanned(NAME)["session/lead"])


@pytest.mark.parametrize(("run_id", "line"), [
    ("signals/todo-stall", "STALL Backend/BILL-8 HIGH: "),
    ("signals/oscillating-state", "LOOP_DETECTED Backend/BILL-7 HIGH: "),
    ("signals/validator-rejection-loop", "ESCALATION Backend/BILL-17 CRITICAL: "),
    ("signals/identical-output", "LOOP_DETECTED Backend/BILL-5 HIGH: "),
    ("notify/three-failed-tasks", "FAILURE Backend/BILL-21 HIGH: "),
])  # fmt: skip
def test_notifications_have_agent_task_and_urgency(run_id: str, line: str) -> None:
    assert any(shown.startswith(f"       {line}") for shown in chapter(NAME, run_id))


def test_agents_follow_stop_pause_and_clear() -> None:
    assert printed(NAME).endswith(
        "STOP_ALL\n"
        "  PAUSE: the fleet is paused by dana: deploy; agents finish the current turn, start nothing\n"
        "  STOP: the fleet is stopped by dana: wrong branch; agents stop now\n"
        "  CLEAR: the fleet is cleared by dana: branch reset; agents continue\n"
    )
