"""Log time: open turns, timeouts, and deadlines for runs that send no events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.core.deadlines import Due, deadline_event
from streamproc.core.signals.open_turns import OPEN_MAX
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import Layer
from tests.feeding import Feed, Raw, decisions, reported, short
from tests.laws.traces import BRIEF, START_MS, traces

MINUTE_MS = 60_000
PLENTY: Raw = {"type": "run.started", "budgets": {"turnTimeoutMs": 10 * MINUTE_MS, "maxRuntimeMs": 60 * MINUTE_MS}}


def at(minutes: float, **raw: Any) -> Raw:
    return {"at": START_MS + round(minutes * MINUTE_MS), **raw}


def started(minutes: float, node: str = "coder", **more: Any) -> Raw:
    return at(minutes, type="turn.started", node=node, **more)


def said(minutes: float, node: str = "coder", **more: Any) -> Raw:
    """A turn with a call: after a turn of text only, a run may wait for a person."""
    call = {"name": "read", "args": {"minutes": minutes}, "result": f"text {minutes}"}
    return at(minutes, node=node, tool_calls=[call], **more)


def deadline(minutes: float) -> Raw:
    return at(minutes, type="deadline")


def policy(**detectors: dict[str, int]) -> Policy:
    standard = load_policy()
    return Policy([*standard.layers, Layer(name="mine", detectors=dict(detectors))])


def next_due(feed: Feed) -> tuple[float, str] | None:
    due = feed.engine.next_deadline(feed.state)
    return None if due is None else ((due.due_ms - START_MS) / MINUTE_MS, due.about)


class DeadlineFeed(Feed):
    """A feed that gets every deadline event as soon as log time reaches it, as from the worker."""

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__(policy or load_policy())
        self.deadlines = 0

    def until(self, minutes: float) -> list[Any]:
        """Return the decisions if the run sends nothing until then."""
        found = []
        while (due := self.engine.next_deadline(self.state)) and due.due_ms <= START_MS + minutes * MINUTE_MS:
            found += self.event(deadline_event("r", due), due.due_ms)
            self.deadlines += 1
        return [short(decision) for decision in found]


def test_a_turn_that_never_ends_is_halted_at_its_timeout() -> None:
    feed = DeadlineFeed()
    feed.all([PLENTY | at(0), said(1, "planner"), started(2)])
    assert feed.until(11.99) == []
    assert feed.until(12) == [("BUDGET001", "halt", 0)]
    assert feed.until(10_000) == [], "a halted run has no further deadlines"


def test_without_a_timeout_ten_minutes_of_silence_halt_an_open_turn() -> None:
    feed = DeadlineFeed()
    feed.all([said(0, "planner"), started(2)])
    assert feed.until(11.99) == []
    assert feed.until(12) == [("STALL007", "halt", 0)]


def test_an_open_turn_is_not_halted_while_other_nodes_are_active() -> None:
    feed = DeadlineFeed()
    found = []
    feed.all([started(0)])
    for minutes in range(1, 60):
        found += feed.until(minutes)
        found += [short(decision) for decision in feed.raw(said(minutes, "reviewer"))]
    assert [one[:2] for one in found] == [("STALL007", "warn")]


def test_a_silent_run_without_an_open_turn_causes_one_warning() -> None:
    feed = DeadlineFeed()
    feed.all([said(0)])
    assert feed.until(10_000) == [("STALL007", "warn", 0)]
    assert feed.deadlines == 1
    feed.all([said(10_001)])
    assert feed.until(20_000) == []


TEXT: Raw = {"node": "coder", "output": "May I delete the old table?"}


def test_a_run_that_may_wait_for_a_person_has_no_deadline() -> None:
    feed = DeadlineFeed()
    feed.all([said(0), TEXT | at(1)])
    assert next_due(feed) is None
    feed.all([said(10_000)])
    assert feed.state.escalation.severity == 0, "and its next turn is not late"
    assert feed.until(20_000) == [("STALL007", "warn", 2)]


@pytest.mark.parametrize(
    "last",
    [at(1, type="user.message"), at(1, node="user", output="Yes."), said(1), started(1, "x"),
     at(1, node="coder", output="Your turn.", decision={"next": "tester"}),
     at(1, node="coder", output="Look.", artifact="+a")],
    ids=str,
)  # fmt: skip
def test_a_run_that_should_be_working_has_a_deadline(last: Raw) -> None:
    feed = DeadlineFeed()
    feed.all([said(0), TEXT | at(0.5), last])
    assert [one[0] for one in feed.until(60)] == ["STALL007"]


def test_a_policy_can_halt_a_silent_run_that_may_wait_for_a_person() -> None:
    feed = DeadlineFeed(policy(STALL007={"halt_silence_s": 1_800}))
    feed.all([TEXT | at(0)])
    assert feed.until(10_000) == [("STALL007", "halt", 0)]


def test_a_policy_can_halt_a_silent_run() -> None:
    feed = DeadlineFeed(policy(STALL007={"halt_silence_s": 1_800}))
    feed.all([said(0)])
    assert feed.until(10_000) == [("STALL007", "warn", 0), ("STALL007", "halt", 0)]


def test_a_policy_can_ignore_silence() -> None:
    off = {"warn_open_turn_s": 0, "halt_open_turn_s": 0, "warn_silence_s": 0, "warn_late_s": 0}
    feed = DeadlineFeed(policy(STALL007=off))
    feed.all([started(0), said(100)])
    assert next_due(feed) is None
    assert feed.until(10_000) == []


@pytest.mark.parametrize("end", [{"type": "run.finished"}, {"type": "operator.stop", "by": "ann"}])
def test_a_run_that_has_ended_has_no_deadline(end: Raw) -> None:
    feed = Feed()
    feed.all([PLENTY | at(0), started(0), at(1, **end)])
    assert next_due(feed) is None
    assert feed.raw(deadline(100)) == []


def test_the_earliest_of_several_deadlines_is_returned() -> None:
    feed = Feed()
    feed.all([PLENTY | at(0), started(0)])
    assert next_due(feed) == (10, "BUDGET001")
    feed.raw(said(1))
    assert next_due(feed) == (12, "STALL007")
    feed.all([said(n * 9) for n in range(1, 6)] + [said(53)])
    assert next_due(feed) == (60, "BUDGET006")


def test_a_run_that_times_out_carries_its_last_known_status() -> None:
    [halt] = decisions([
        PLENTY | at(0), said(5, "writer", round=3, usage={"total_tokens": 70, "cost_usd": "0.20"}), deadline(60),
    ])[-1:]  # fmt: skip
    assert (halt.type, halt.terminal_status, halt.halt_reason) == ("run.timed_out", "timed_out", "budget_exceeded")
    assert halt.at == "2026-01-01T01:00:00.000Z"
    snapshot = halt.evidence.snapshot
    assert (snapshot.turns, snapshot.round, snapshot.total_tokens, snapshot.cost_usd_micro) == (1, 3, 70, 200_000)
    assert (snapshot.last_node, snapshot.heard_at) == ("writer", "2026-01-01T00:05:00.000Z")


@pytest.mark.parametrize("start", [[PLENTY | at(0)], []])
def test_a_decision_names_the_node_that_hangs_and_not_the_active_one(start: list[Raw]) -> None:
    [decision] = decisions([*start, started(0, "coder"), said(5, "planner"), said(11, "planner")])
    assert decision.node == "coder"
    assert "coder" in decision.message
    [hangs, *_] = decisions([*start, started(0, "coder"), deadline(10)])
    assert hangs.node == "coder"


def test_a_multiple_of_the_usual_runtime_is_a_deadline() -> None:
    mine = policy(BUDGET006={"p99_s": 300, "p99_multiple": 3})
    assert reported([at(0, node="a"), said(14), said(15)], mine) == [("BUDGET006", "halt", 2)]
    feed = DeadlineFeed(mine)
    feed.all([at(0, node="a"), said(8)])
    assert feed.until(15) == [("BUDGET006", "halt", 1)]


def test_a_resumed_run_that_is_silent_is_warned_and_not_halted() -> None:
    feed = DeadlineFeed()
    feed.all([said(0), at(1, type="operator.stop", by="ann"), at(2, type="operator.resume", by="ann"), said(3)])
    assert feed.state.escalation.probation_until >= 0
    assert feed.until(10_000) == [("STALL007", "warn", 1)]


def test_the_time_while_a_run_was_halted_does_not_count() -> None:
    feed = DeadlineFeed()
    feed.all([PLENTY | at(0), said(5), at(10, type="operator.stop"), at(200, type="operator.resume"), said(201)])
    assert feed.state.halted < 0
    assert feed.until(212) == [("STALL007", "warn", 1)]
    assert feed.until(300) == [("BUDGET006", "halt", 1)]


def test_without_deadlines_a_timeout_is_found_at_the_next_event() -> None:
    for late in (said(13, "planner"), started(13, "planner"), at(13, type="user.message"), at(13, type="run.finished")):
        assert reported([PLENTY | at(0), started(2), late])[:1] == [("BUDGET001", "halt", 0)]


def test_a_deadline_is_not_activity_of_the_run() -> None:
    feed = Feed()
    feed.all([said(0), started(1), deadline(9)])
    assert feed.state.at_ms == START_MS + MINUTE_MS
    assert [short(one) for one in feed.raw(deadline(11))] == [("STALL007", "halt", 0)]


def test_a_deadline_that_comes_too_early_can_come_again() -> None:
    feed = Feed()
    feed.all([said(0), started(1)])
    due = feed.engine.next_deadline(feed.state)
    early = feed.event(deadline_event("r", due), due.due_ms - 1)
    assert (early, feed.engine.next_deadline(feed.state)) == ([], due)
    [halt] = feed.event(deadline_event("r", due), due.due_ms)
    assert halt.severity == "halt"


def test_the_same_deadline_from_two_workers_counts_once() -> None:
    feed = Feed()
    feed.all([said(0), started(1)])
    due = feed.engine.next_deadline(feed.state)
    assert deadline_event("r", due) == deadline_event("r", due)
    assert len(feed.event(deadline_event("r", due), due.due_ms)) == 1
    assert feed.event(deadline_event("r", due), due.due_ms + 5) == []
    assert feed.state.duplicates == 1


def test_different_deadlines_have_different_ids() -> None:
    due = Due(5, "STALL007", 1, "coder")
    others = [due._replace(due_ms=6), due._replace(about="BUDGET001"), due._replace(since_ms=2), due._replace(node="x")]
    ids = {deadline_event(run, one).event_id for run in ("r", "s") for one in (due, *others)}
    assert len(ids) == 10


def test_a_turn_of_a_task_ends_only_the_open_turn_of_that_task() -> None:
    feed = Feed()
    feed.all([started(0, task_id="T1"), started(1, task_id="T2"), said(2, task_id="T1")])
    assert [turn.started_ms for turn in feed.state.open_turns] == [START_MS + MINUTE_MS]
    feed.raw(said(3))
    assert feed.state.open_turns == [], "a turn that names no task ends all of its node's"


def test_a_node_that_starts_another_turn_has_one_open_turn() -> None:
    feed = Feed()
    feed.all([started(0), started(5)])
    assert [turn.started_ms for turn in feed.state.open_turns] == [START_MS + 5 * MINUTE_MS]


def test_a_turn_of_any_node_ends_an_open_turn_without_a_node() -> None:
    feed = Feed()
    feed.all([at(0, type="turn.started"), said(1)])
    assert feed.state.open_turns == []


def test_open_turns_are_bounded() -> None:
    feed = Feed()
    feed.all([started(n, f"node-{n}" * 30) for n in range(50)])
    assert len(feed.state.open_turns) == OPEN_MAX
    assert feed.state.evicted == 50 - OPEN_MAX


def test_a_reused_run_id_starts_its_clocks_again() -> None:
    feed = Feed()
    feed.all([PLENTY | at(0), said(1), at(2, type="run.finished"), PLENTY | at(90), said(91)])
    assert next_due(feed) == (102, "STALL007")
    assert reported([PLENTY | at(0), said(1), at(2, type="run.finished"), PLENTY | at(90), said(149)])[-1:] != [
        ("BUDGET006", "halt", 0)
    ]


@given(traces, st.lists(st.integers(0, 90), max_size=4))
@BRIEF
def test_the_next_deadline_is_in_the_future_and_survives_dump_and_load(trace: list[Raw], minutes: list[int]) -> None:
    feed = Feed()
    waits = [started(n, "coder") for n in minutes] + [deadline(n) for n in minutes]
    for raw in [PLENTY | at(0), *trace, *waits]:
        feed.raw(raw)
        due = feed.engine.next_deadline(feed.state)
        assert due is None or due.due_ms > max(feed.state.at_ms, feed.state.checked_ms)
        feed.restart()
        assert feed.engine.next_deadline(feed.state) == due


@given(traces)
@BRIEF
def test_silence_causes_a_bounded_number_of_deadlines(trace: list[Raw]) -> None:
    feed = DeadlineFeed()
    feed.all([PLENTY | at(0), started(0), *trace])
    feed.until(100_000)
    assert feed.deadlines <= 2 * OPEN_MAX + 3
    assert feed.until(200_000) == []
