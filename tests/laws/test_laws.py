"""Properties of all detectors together, for any input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.core import engine
from streamproc.core.decide import decide
from streamproc.detectors.base import Finding, Level, View
from streamproc.model.controls import ControlEvent
from streamproc.model.wire import Event
from streamproc.policy import load_policy
from tests.feeding import STANDARD, Feed, Raw, event_of, written
from tests.laws.traces import (
    BOARD,
    BRIEF,
    CLOCKS,
    EVENTS,
    LONGER,
    OTHERS,
    TURNS,
    boards,
    clocks,
    traces as all_traces,
    turns_only,
)

traces = all_traces | boards | clocks

POLICIES = [load_policy(name) for name in ("standard", "loop-safety", "deliberation", "tickets")]


@contextmanager
def recorded_findings() -> Iterator[list[Finding]]:
    """Record the finding behind each decision of any engine."""
    findings: list[Finding] = []

    def recording(view: View, event: Event, rules: Any, finding: Finding) -> ControlEvent:
        findings.append(finding)
        return decide(view, event, rules, finding)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "decide", recording)
        yield findings


def starts_again(state: Any, raw: Raw) -> bool:
    """Whether an event starts a new episode: a reused run id after the end of its run, or a resume."""
    resumed = state.halted >= 0 and raw.get("type") == "operator.resume"
    return resumed or (state.finished and state.halted < 0 and raw.get("type") == "run.started")


@given(traces, st.sampled_from(POLICIES))
@BRIEF
def test_the_same_events_give_the_same_decisions(trace: list[Raw], policy: Any) -> None:
    first, second = Feed(policy), Feed(policy)
    assert written(first.all(trace)) == written(second.all(trace))
    assert first.stored == second.stored


@pytest.mark.long
@given(traces)
@LONGER
def test_storing_a_state_after_every_event_changes_nothing(trace: list[Raw]) -> None:
    kept, stored = Feed(), Feed()
    for raw in trace:
        assert written(kept.raw(raw)) == written(stored.raw(raw))
        stored.restart()


@given(traces, st.data())
@LONGER
def test_a_duplicate_event_changes_nothing(trace: list[Raw], data: st.DataObject) -> None:
    twice = data.draw(st.sets(st.integers(0, len(trace) - 1)))
    once, again = Feed(), Feed()
    for n, raw in enumerate(trace):
        assert written(once.raw(raw)) == written(again.raw(raw))
        if n in twice:
            assert again.raw(raw) == []
            assert again.state.duplicates == 1
            again.state.duplicates = 0
        assert once.stored == again.stored


@given(traces, traces, st.randoms(use_true_random=False))
@BRIEF
def test_interleaved_runs_do_not_affect_each_other(first: list[Raw], second: list[Raw], order: Any) -> None:
    alone = [
        written(Feed().all(raw | {"run_id": run} for raw in trace)) for run, trace in (("a", first), ("b", second))
    ]
    engine = STANDARD.engine()
    states: dict[str, Any] = {"a": b"", "b": b""}
    together: dict[str, list[ControlEvent]] = {"a": [], "b": []}
    waiting = {"a": list(reversed(first)), "b": list(reversed(second))}
    while waiting["a"] or waiting["b"]:
        run = order.choice([name for name in waiting if waiting[name]])
        event = event_of(waiting[run].pop() | {"run_id": run})
        outcome = engine.step(states[run], event, event.at)
        states[run] = outcome.kept
        together[run] += outcome.decisions
    assert [written(together["a"]), written(together["b"])] == alone


@given(traces)
@LONGER
def test_a_loop_is_reported_once_at_each_level(trace: list[Raw]) -> None:
    feed = Feed()
    ids: list[str] = []
    with recorded_findings() as findings:
        for raw in trace:
            if starts_again(feed.state, raw):
                findings.clear()
            ids += [decision.id for decision in feed.raw(raw)]
            reported = [(finding.code, finding.loop, finding.level) for finding in findings]
            assert len(reported) == len(set(reported))
            for code, loop, _ in reported:
                levels = [level for other, where, level in reported if (other, where) == (code, loop)]
                assert levels == sorted(levels)
    assert len(ids) == len(set(ids))


@given(traces)
@LONGER
def test_a_decision_names_the_turn_that_caused_it(trace: list[Raw]) -> None:
    feed = Feed()
    for raw in trace:
        turns = feed.state.turns
        for decision in feed.raw(raw):
            assert decision.trigger.event_id == raw["event_id"]
            assert decision.trigger.turn == max(0, feed.state.turns - 1)
            assert decision.onset is None or 0 <= decision.onset <= turns
            assert (decision.severity == "halt") == (decision.halt_reason is not None)
            assert decision.severity != "halt" or decision.terminal_status is not None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**6)), max_size=200))
@BRIEF
def test_turns_without_evidence_lead_to_no_decision(turns: list[tuple[str, int]]) -> None:
    raws = [{"node": node, "usage": {"input_tokens": tokens, "duration_ms": tokens}} for node, tokens in turns]
    assert Feed().all(raws) == []


@given(turns_only)
@LONGER
def test_a_turn_that_fixes_the_last_failing_test_is_never_halted(trace: list[Raw]) -> None:
    feed = Feed()
    failing: dict[str, int] = {}
    for raw in trace:
        decisions = feed.raw(raw)
        if "tests" in raw:
            now, before = len(raw["tests"]["failed"]), failing.get(raw["node"], 0)
            failing[raw["node"]] = now
            if before and not now:
                assert [decision.code for decision in decisions if decision.severity == "halt"] == []


@given(turns_only)
@LONGER
def test_without_budgets_no_budget_detector_decides(trace: list[Raw]) -> None:
    assert [decision for decision in Feed().all(trace) if decision.code.startswith("BUDGET")] == []


@given(traces)
@BRIEF
def test_a_finished_run_gets_no_more_decisions(trace: list[Raw]) -> None:
    feed = Feed()
    feed.all(trace)
    feed.raw({"type": "run.finished"})
    turns, late = feed.state.turns, feed.state.late
    assert feed.all(raw for raw in TURNS * 3) == []
    assert (feed.state.turns, feed.state.late) == (turns, late + len(TURNS) * 3)


@given(traces)
@BRIEF
def test_a_halted_run_stays_halted(trace: list[Raw]) -> None:
    feed = Feed()
    for raw in trace:
        severity, halted = feed.state.escalation.severity, feed.state.halted
        if starts_again(feed.state, raw):
            severity, halted = 0, -1
        feed.raw(raw)
        assert feed.state.escalation.severity >= severity
        assert feed.state.halted >= halted
        assert (feed.state.halted >= 0) == (feed.state.escalation.severity == Level.HALT)


def test_the_traces_cause_decisions_of_every_kind_of_detector() -> None:
    """The laws above would prove little on traces without loops."""
    trace = [raw for template in EVENTS[: -len(OTHERS)] for raw in [template] * 5]
    started = {**OTHERS[2], **OTHERS[3], **OTHERS[4]}
    assert {decision.code for decision in Feed().all([started, *trace])} >= {"BUDGET002", "BUDGET004", "BUDGET007"}
    alone = {decision.code for template in TURNS for decision in Feed().all([template] * 5)}
    pairs = {decision.code for a in TURNS[:4] for b in TURNS[:4] for decision in Feed().all([a, b] * 3)}
    assert alone | pairs >= {"LOOP001", "LOOP002", "LOOP003", "STALL001", "STALL002", "STALL003", "ERROR001"}


def test_the_traces_cause_decisions_of_every_board_detector() -> None:
    found = {decision.code for a in BOARD for b in BOARD for decision in Feed().all([a, b] * 4)}
    chain = [{"type": "task.transition", "task_id": f"T{n}", "to": "BLOCKED"} for n in range(4)]
    found |= {decision.code for decision in Feed().all([*BOARD[:5], *chain])}
    gate = [*BOARD[:5], {"type": "task.transition", "task_id": "T1", "from": "LOCKED", "to": "IMPLEMENTING", "init": 1}]
    found |= {decision.code for decision in Feed().all(gate)}
    stalled = [{"type": "task.transition", "task_id": "T1", "to": "QA_REVIEW"}, *[{"type": "cycle.completed"}] * 3]
    found |= {decision.code for decision in Feed().all(stalled)}
    found |= {decision.code for decision in Feed().all(raw for raw in BOARD if raw.get("verdict") == "REJECTED")}
    assert found >= {*(f"TASK00{n}" for n in range(1, 9)), "ERROR002", "ERROR004", "STALL005", "STALL006"}


def test_the_traces_cause_decisions_of_every_time_detector() -> None:
    found = {decision.code for a in CLOCKS for b in CLOCKS for decision in Feed().all(_spread([a, b] * 4))}
    assert found >= {"BUDGET001", "BUDGET005", "BUDGET006", "STALL007"}


def _spread(raws: list[Raw]) -> list[Raw]:
    """Return the events, ten minutes apart."""
    return [raw | {"at": 1_767_225_600_000 + 600_000 * n} for n, raw in enumerate(raws)]
