"""The levels of a task's token budget: each is reported once, at its mark."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.core.signals.task_tokens import TASKS_MAX
from streamproc.policy import load_policy
from tests.feeding import STANDARD, Feed, decisions

DELEGATED = {"type": "task.delegated", "task_id": "T", "agent": "a", "max_token_budget": 1_000}


def spent(tokens: int, task: str = "T", **fields: Any) -> dict[str, Any]:
    return {"node": "agent", "task_id": task, "usage": {"total_tokens": tokens}, **fields}


def rungs(raws: list[dict[str, Any]], policy: Any = STANDARD) -> list[tuple[str | None, str, str | None]]:
    """Return rung, severity and action of the decisions on task tokens."""
    return [
        (one.evidence.rung if one.evidence else None, one.severity, one.action)
        for one in decisions(raws, policy)
        if one.code == "BUDGET008"
    ]


@pytest.mark.parametrize(("tokens", "reported"), [
    (699, []),
    (700, [("warning", "warn", "warn")]),
    (800, [("restrict", "warn", "warn")]),
    (900, [("urgent", "warn", "done_partial")]),
    (950, [("hard_stop", "halt", "force_synthesis")]),
    (1_000, [("hard_stop", "halt", "force_synthesis")]),
    (1_001, [("violation", "warn", "ask_human"), ("violation", "halt", "kill")]),
])  # fmt: skip
def test_each_level_starts_at_its_mark(tokens: int, reported: list[tuple[str, str, str]]) -> None:
    assert rungs([DELEGATED, spent(tokens)]) == reported


def test_each_level_is_reported_once() -> None:
    raws = [DELEGATED, spent(690), *(spent(1) for _ in range(400))]
    assert [rung for rung, _, _ in rungs(raws)] == [
        "warning", "restrict", "urgent", "hard_stop", "violation", "violation",
    ]  # fmt: skip


def test_a_violation_kills_the_run_and_escalates_the_task() -> None:
    escalated, killed = decisions([DELEGATED, spent(1_001)])
    assert (escalated.type, escalated.task_id) == ("task.escalated", "T")
    assert (killed.type, killed.terminal_status, killed.halt_reason) == (
        "budget.level", "budget_exceeded", "budget_exceeded",
    )  # fmt: skip
    assert (killed.evidence.used, killed.evidence.limit, killed.evidence.unit) == (1_001, 1_000, "tokens")


def test_a_task_that_is_stopped_leaves_the_other_tasks_of_the_run_alone() -> None:
    other = {**DELEGATED, "task_id": "U", "agent": "b"}
    stopped = decisions([DELEGATED, other, spent(960), spent(960, "U")])
    assert [(one.severity, one.terminal_status, one.task_id, one.action) for one in stopped] == [
        ("warn", "budget_exceeded", "T", "force_synthesis"), ("warn", "budget_exceeded", "U", "force_synthesis"),
    ]  # fmt: skip
    assert "stop a" in stopped[0].message
    assert rungs([DELEGATED, other, spent(1_001)]) == [
        ("violation", "warn", "ask_human"),
        ("violation", "warn", "kill"),
    ]
    strict = load_policy({"detectors": {"BUDGET008": {"halt_run": 1}}})
    assert rungs([DELEGATED, other, spent(960)], strict) == [("hard_stop", "halt", "force_synthesis")]
    started = {"type": "run.started", "task_id": "T"}
    assert rungs([started, DELEGATED, other, spent(960)]) == [("hard_stop", "halt", "force_synthesis")]


def test_a_killed_task_is_escalated_on_the_board_until_a_person_approves() -> None:
    board = [{"type": "task.created", "task_id": name} for name in ("T", "U")]
    on = {"type": "task.transition", "task_id": "T", "from": "READY", "to": "LOCKED"}
    found = decisions([*board, DELEGATED, spent(1_001), on, on | {"approved_by": "ann"}])
    assert [(one.code, one.type) for one in found] == [
        ("BUDGET008", "task.escalated"), ("BUDGET008", "task.ended"), ("TASK008", "transition.blocked"),
        ("TASK008", "decision.recorded"),
    ]  # fmt: skip


def test_each_task_of_a_batch_has_its_own_budget() -> None:
    batch = {"type": "task.delegated", "agent": "a", "tasks": ["A", "B"], "max_token_budget": 1_000}
    assert rungs([batch, spent(690, "A"), spent(690, "B")]) == []
    assert [rung for rung, _, _ in rungs([batch, spent(690, "A"), spent(710, "B"), spent(20, "A")])] == ["warning"] * 2


def test_a_run_that_was_started_for_a_task_spends_the_tokens_of_that_task() -> None:
    turn = {"node": "agent", "usage": {"total_tokens": 960}}
    assert rungs([{"type": "run.started", "task_id": "T"}, DELEGATED, turn]) == [
        ("hard_stop", "halt", "force_synthesis")
    ]
    assert rungs([DELEGATED, turn]) == []


def test_tasks_without_a_budget_use_that_of_the_policy_or_the_run() -> None:
    policy = load_policy({"budgets": {"maxTaskTokens": 1_000}})
    assert [rung for rung, _, _ in rungs([spent(720)], policy)] == ["warning"]
    assert [rung for rung, _, _ in rungs([{**DELEGATED, "max_token_budget": 9_000}, spent(720)], policy)] == []
    assert [rung for rung, _, _ in rungs([{"type": "run.started", "budgets": {"maxTaskTokens": 100}}, spent(72)])] == [
        "warning"
    ]


def test_a_level_and_the_detector_can_be_switched_off() -> None:
    policy = load_policy({"detectors": {"BUDGET008": {"warn_percent": 0}}})
    assert rungs([DELEGATED, spent(790)], policy) == []
    assert rungs([DELEGATED, spent(9_000)], load_policy({"detectors": {"BUDGET008": False}})) == []


def test_tasks_are_bounded() -> None:
    feed = Feed()
    for number in range(100):
        feed.raw({**DELEGATED, "task_id": f"T{number}"})
        feed.raw(spent(2**50, f"T{number}"))
    assert len(feed.state.task_tokens) == TASKS_MAX
