"""Resuming a halted run: fresh streaks, a grant, and one iteration on probation."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.model.controls import ControlEvent
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, short

STUCK: list[Raw] = [{"node": "coder", "output": "I will try again."}] * 3
STOP: Raw = {"type": "operator.stop", "by": "ada"}
RESUME: Raw = {"type": "operator.resume", "by": "ada", "reason": "one more try"}
NOON_MS = 1_769_860_800_000


def resumed(**grant: Any) -> Raw:
    return RESUME | {"grant": grant}


def steps(first: int, last: int, **fields: Any) -> list[Raw]:
    return [{"node": "coder", "output": f"step {n}"} | fields for n in range(first, last)]


def status(feed: Feed) -> str:
    return feed.engine.status(feed.state, "r").status


def test_a_resumed_run_is_running_and_the_resume_is_published() -> None:
    feed = Feed()
    feed.all(STUCK)
    assert status(feed) == "halted"

    [decision] = feed.raw(resumed(turns=10))

    assert (decision.type, decision.code, decision.severity, decision.action) == (
        "run.resumed",
        "OPERATOR003",
        "info",
        None,
    )
    assert (decision.halt_reason, decision.terminal_status) == (None, None)
    assert decision.message == "Resumed by ada: one more try (maxSteps +10)."
    assert decision.evidence.grant == {"maxSteps": 10}
    assert status(feed) == "running"
    assert feed.engine.status(feed.state, "r").severity == "info"


def test_names_and_reasons_of_operators_are_shown_on_one_line() -> None:
    feed = Feed()
    commands = [{"type": kind, "by": "ada\n", "reason": "two\nlines"} for kind in ("operator.stop", "operator.resume")]
    assert [one.message for one in feed.all(commands)] == ["Stopped by ada: two lines.", "Resumed by ada: two lines."]


def test_resuming_a_run_that_is_not_halted_is_ignored() -> None:
    feed = Feed()
    assert feed.all([*steps(0, 2), RESUME, *STUCK[:2]])[0].severity == "warn"  # and no probation
    assert feed.state.ignored_events == 1


def test_a_run_that_ended_because_it_was_halted_can_be_resumed() -> None:
    feed = Feed()
    feed.all([*STUCK, {"type": "run.finished"}])
    assert [one.type for one in feed.raw(RESUME)] == ["run.resumed"]
    feed.all(steps(0, 4))
    assert (status(feed), feed.state.turns, feed.state.late) == ("running", 7, 0)


def halt_of(found: list[ControlEvent]) -> ControlEvent:
    [halt] = [one for one in found if one.severity == "halt"]
    return halt


def halts_at(found: list[ControlEvent]) -> list[tuple[str, int]]:
    return [(one.code, short(one).at) for one in found if one.severity == "halt"][:1]


def test_the_same_loop_on_probation_is_halted_at_its_warning_for_good() -> None:
    feed = Feed()
    first = halt_of(feed.all(STUCK))
    feed.raw(RESUME)

    halt = halt_of(feed.all(STUCK[:2]))

    assert short(halt) == ("LOOP001", "halt", 4)
    assert (halt.terminal_status, halt.action, halt.halt_reason) == ("escalated", "ask_human", first.halt_reason)
    assert halt.message.endswith("a person must review it.")
    assert halt.type == "loop.halted"
    assert feed.state.escalation.probation_until == -1


def test_after_probation_a_loop_causes_a_warning_first() -> None:
    feed = Feed()
    feed.all([*STUCK, RESUME, *steps(0, 3)])
    assert feed.state.escalation.probation_until == -1
    assert [short(one) for one in feed.all(STUCK)] == [("LOOP001", "warn", 7), ("LOOP001", "halt", 8)]


def test_detectors_that_only_warn_do_not_halt_on_probation() -> None:
    feed = Feed()
    busy = {"node": "coder", "tool_calls": [{"name": "llm", "args": {}, "error": "HTTP 429 Too Many Requests"}]}
    feed.all([*STUCK, RESUME])
    feed.state.escalation.probation_until = 1_000
    assert {(one.code, one.severity) for one in feed.all([busy] * 12)} == {("INFRA001", "warn")}


def test_in_a_cycle_probation_lasts_until_an_iteration_is_complete() -> None:
    graph = {"edges": [["plan", "code"], {"from": "code", "to": "plan", "anchor": True}, ["code", "end"]]}
    rounds = [
        {"node": node, "from": source, "output": f"{node} {n}"}
        for n in range(3)
        for source, node in (("code", "plan"), ("plan", "code"))
    ]
    feed = Feed()
    feed.all([{"type": "run.started", "graph": graph}, *rounds, STOP, RESUME])
    long = [{"node": "code", "from": "code", "output": f"a long turn {n}"} for n in range(5)]
    feed.all(long)
    assert feed.state.escalation.probation_until >= 0
    feed.raw({"node": "plan", "from": "code", "output": "another plan"})
    assert feed.state.escalation.probation_until == -1


def test_probation_ends_after_a_maximum_of_turns() -> None:
    feed = Feed()
    graph = {"edges": [["plan", "code"], ["code", "plan"], ["code", "end"]]}
    feed.all([{"type": "run.started", "graph": graph}, *steps(0, 2), STOP, RESUME, *steps(2, 30)])
    assert feed.state.escalation.probation_until == -1


@pytest.mark.parametrize(("budgets", "turn", "more"), [
    ({"maxSteps": 4}, {}, {"turns": 3}), ({"maxCostUsd": "4"}, {"usage": {"cost_usd": "1"}}, {"cost": "3"}),
    ({"maxTurnsPerNode": 4}, {}, {"maxTurnsPerNode": 3}),
])  # fmt: skip
def test_a_grant_extends_the_budget_by_its_amount(budgets: Raw, turn: Raw, more: Raw) -> None:
    feed = Feed()
    begin = {"type": "run.started", "budgets": budgets}
    first = halt_of(feed.all([begin, *steps(0, 8, **turn)]))
    assert first.trigger is not None
    spent = feed.state.turns

    feed.raw(resumed(**more))
    found = feed.all(steps(8, 16, **turn))

    again = halt_of(found)
    assert again.trigger.turn == spent + 3  # three more turns were granted
    assert again.code == first.code
    assert again.id != first.id


def test_a_grant_of_tokens_applies_to_every_task_with_a_budget() -> None:
    feed = Feed()
    delegated = {"type": "task.delegated", "tasks": ["T1"], "max_token_budget": 1_000}
    spent = {"task_id": "T1", "usage": {"total_tokens": 200}}
    first = halt_of(feed.all([delegated, *steps(0, 5, **spent)]))
    assert first.code == "BUDGET008"

    feed.raw(resumed(tokens=1_000))
    assert halts_at(feed.all(steps(5, 15, **spent))) == [("BUDGET008", 9)]


def test_a_budget_without_a_grant_stays_exceeded() -> None:
    feed = Feed()
    feed.all([{"type": "run.started", "budgets": {"maxSteps": 2}}, *steps(0, 3), RESUME])
    halt = halt_of(feed.all(steps(3, 4)))
    assert (halt.code, halt.terminal_status) == ("BUDGET004", "escalated")


def test_a_grant_adds_no_new_limit_and_respects_ceilings() -> None:
    feed = Feed()
    feed.all([{"type": "run.started", "budgets": {"maxRounds": 10}}, *steps(0, 2), STOP, resumed(turns=1, rounds=90)])
    assert feed.state.scope.budgets["maxRounds"] == 15
    assert "maxSteps" not in feed.state.scope.budgets


def test_the_time_while_a_run_was_halted_does_not_count() -> None:
    feed = Feed()
    hour_ms = 3_600_000
    feed.raw({"type": "run.started", "budgets": {"maxRuntimeMs": 2 * hour_ms}, "at": NOON_MS})
    feed.all([steps(0, 1)[0] | {"at": NOON_MS + hour_ms}, STOP | {"at": NOON_MS + hour_ms}])
    found = feed.all([RESUME | {"at": NOON_MS + 50 * hour_ms}, steps(1, 2)[0] | {"at": NOON_MS + 50 * hour_ms + 1}])
    assert [one.type for one in found] == ["run.resumed"]


def ran_out(limit_ms: int, at_ms: int, event: Raw, **budgets: int) -> Feed:
    """Return a run with a step at `at_ms` that is halted by `event`, in ms since noon."""
    feed = Feed()
    feed.raw({"type": "run.started", "budgets": {"maxRuntimeMs": limit_ms, **budgets}, "at": NOON_MS})
    feed.all([steps(0, 1)[0] | {"at": NOON_MS + at_ms}])
    assert halt_of(feed.all([event])).terminal_status == "timed_out"
    return feed


@pytest.mark.parametrize("event", [
    {"type": "deadline", "at": NOON_MS + 3_600_000}, steps(1, 2)[0] | {"at": NOON_MS + 3_700_000},
])  # fmt: skip
def test_a_clock_that_ran_out_starts_again_with_a_resume_without_a_grant(event: Raw) -> None:
    hour_ms = 3_600_000
    feed = ran_out(hour_ms, hour_ms - 60_000, event)
    back_ms = NOON_MS + 9 * hour_ms
    on = [steps(n, n + 1)[0] | {"at": back_ms + (n - 1) * 600_000} for n in (2, 3, 4, 5)]
    assert [one.type for one in feed.all([RESUME | {"at": back_ms}, *on])] == ["run.resumed"]
    assert feed.engine.next_deadline(feed.state) is not None
    late = steps(6, 7)[0] | {"at": back_ms + hour_ms}
    assert halt_of(feed.all([late])).type == "run.timed_out"


def test_a_clock_that_was_granted_more_time_continues() -> None:
    hour_ms = 3_600_000
    feed = ran_out(hour_ms, 100, steps(1, 2)[0] | {"at": NOON_MS + hour_ms})
    back_ms = NOON_MS + 9 * hour_ms
    granted = resumed(maxRuntimeMs=60_000) | {"at": back_ms}
    assert [one.type for one in feed.all([granted, steps(2, 3)[0] | {"at": back_ms + 59_000}])] == ["run.resumed"]
    [halt] = feed.all([steps(3, 4)[0] | {"at": back_ms + 60_000}])
    assert (halt.type, halt.evidence.limit, halt.evidence.limit_from) == ("run.timed_out", hour_ms + 60_000, "grant")


def test_a_node_that_used_up_its_runtime_starts_again_without_a_grant() -> None:
    feed = Feed()
    slow = {"node": "agent", "usage": {"duration_ms": 600}}
    feed.raw({"type": "run.started", "budgets": {"maxRuntimeMsPerNode": 1_000}})
    assert halt_of(feed.all([slow | {"output": "a"}, slow | {"output": "b"}])).code == "BUDGET002"
    assert [one.type for one in feed.all([RESUME, slow | {"output": "c"}])] == ["run.resumed"]


def test_every_stop_and_resume_of_a_run_has_its_own_id() -> None:
    feed = Feed()
    found = [*feed.all(steps(0, 1)), *[one for _ in range(5) for one in feed.all([STOP, RESUME])]]
    assert len({one.id for one in found}) == len(found) == 10


def test_a_resume_survives_a_restart() -> None:
    feed = Feed()
    for raw in [*STUCK, RESUME, *STUCK[:1]]:
        feed.raw(raw)
        feed.restart()
    assert halt_of(feed.all(STUCK[:1])).terminal_status == "escalated"


# Halts without an acknowledgement.


def escalations(raws: list[Raw]) -> list[ControlEvent]:
    return [one for one in Feed().all(raws) if one.code == "OPERATOR002"]


KNOWN: Raw = {"type": "halt.acknowledged", "by": "ada"}


def test_a_run_that_continues_after_its_halt_is_escalated_once() -> None:
    [decision] = escalations([*steps(0, 3), STOP, *steps(3, 500)])
    assert (decision.type, decision.severity, decision.terminal_status) == ("notification", "warn", "escalated")
    assert decision.action == "ask_human"
    assert short(decision).at == 103


def test_a_halt_that_was_acknowledged_is_not_escalated_and_a_later_one_is() -> None:
    acknowledged = [*steps(0, 3), STOP, KNOWN, *steps(3, 300)]
    assert escalations(acknowledged) == []
    assert len(escalations([*acknowledged, *STUCK, *steps(303, 420)])) == 1


def test_a_second_halt_does_not_delay_the_escalation() -> None:
    loops = [{"node": "coder", "output": f"loop {n // 4}"} for n in range(200)]
    [decision] = escalations([*steps(0, 6), STOP, *loops])
    assert short(decision).at == 106


def test_a_resumed_run_is_not_escalated_for_its_old_halt() -> None:
    assert escalations([*steps(0, 3), STOP, RESUME, *steps(3, 300)]) == []


def test_with_the_tickets_policy_ten_turns_after_a_halt_escalate_it() -> None:
    found = Feed(load_policy("tickets")).all([*steps(0, 3), STOP, *steps(3, 20)])
    assert [short(one) for one in found] == [("OPERATOR001", "halt", 2), ("OPERATOR002", "warn", 13)]
