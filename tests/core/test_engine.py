"""The engine: escalation, evidence, commands, time, spend and status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from streamproc.core.deadlines import Due
from streamproc.core.escalation import EPISODES_MAX, hash_code
from streamproc.detectors import BY_CODE
from streamproc.detectors.base import View, hex16
from streamproc.fingerprint.hash import content, h64
from streamproc.model.log_time import rfc3339
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, decisions, event_of, halts, reported

MAKE: Raw = {"node": "agent", "tool_calls": [{"name": "run", "args": {"cmd": "make"}, "result": "error: no rule"}]}
AGAIN: Raw = {"node": "agent", "output": "again"}


def call(name: str, n: int, result: str) -> Raw:
    return {"node": "agent", "tool_calls": [{"name": name, "args": n, "result": result}]}


# Escalation.


def test_a_loop_is_reported_once_at_each_level_however_long_it_lasts() -> None:
    assert reported([MAKE] * 100) == [("LOOP003", "warn", 1), ("LOOP003", "halt", 2)]


def test_a_loop_that_began_before_the_halt_is_the_same_episode() -> None:
    both = [turn for n in range(6) for turn in (MAKE, AGAIN)]
    assert [one.code for one in decisions(both) if one.severity == "halt"] == ["LOOP003"]


def test_a_loop_that_begins_after_the_halt_is_reported() -> None:
    found = halts([MAKE] * 3 + [call("read", 1, "news")] + [call("look", 1, "nothing")] * 3)
    assert found == [("LOOP003", "halt", 2), ("LOOP003", "halt", 6)]


def test_a_budget_is_reported_even_after_a_halt() -> None:
    found = halts([{"type": "run.started", "budgets": {"maxSteps": 5}}, *[MAKE] * 9])
    assert found == [("LOOP003", "halt", 2), ("BUDGET004", "halt", 5)]


def test_reported_loops_are_kept_up_to_a_cap() -> None:
    feed = Feed()
    for n in range(300):
        feed.all([call("look", n, f"nothing at {n}")] * 2)
    assert len(feed.state.escalation.episodes) == EPISODES_MAX


def test_hashes_of_codes_do_not_collide() -> None:
    codes = [
        f"{prefix}{n:03}"
        for prefix in ("LOOP", "STALL", "ERROR", "BUDGET", "TASK", "GRAPH", "INFRA", "OPERATOR", "TREE", "CLAIM")
        for n in range(30)
    ]
    assert {*BY_CODE} <= {*codes}
    assert len({hash_code(code) & 0xFFFFFFFF for code in codes}) == len(codes)


# A detector with a defect.


class Broken:
    """A detector that raises whenever it is asked, also for deadlines."""

    code, name, kinds = "LOOP000", "broken", -1

    def check(self, view: View, limits: object) -> None:
        raise ZeroDivisionError

    def due(self, run: Any, budgets: dict[str, int], limits: object) -> list[Due]:
        raise ZeroDivisionError


class WithBroken:
    """The standard policy, with one more detector that is asked before all others."""

    def rules(self, workflow: str, tenant: str, tier: str) -> Any:
        rules = load_policy().rules(workflow, tenant, tier)  # a policy of its own: scopes share their rules
        broken = (Broken(), None)
        rules._detectors = (broken, *rules._detectors)
        rules.waiting = (broken, *rules.waiting)
        return rules


def test_a_detector_that_raises_is_counted_and_the_others_decide_as_usual() -> None:
    feed, faults = Feed(WithBroken()), []
    feed.engine.on_fault = lambda code, times, problem: faults.append((code, times, type(problem)))
    events = [{"type": "run.started", "budgets": {"turnTimeoutMs": 1_000}}, *[MAKE] * 9]

    found = feed.all(events)

    assert [decision.id for decision in found] == [decision.id for decision in Feed().all(events)]
    assert feed.engine.faults == {"LOOP000": len(faults)}
    assert faults[:2] == [("LOOP000", 1, ZeroDivisionError), ("LOOP000", 2, ZeroDivisionError)]
    assert feed.engine.next_deadline(feed.state) is None  # the run is halted


def test_a_detector_that_raises_for_its_deadline_does_not_affect_others() -> None:
    feed = Feed(WithBroken())
    feed.all([
        {"type": "run.started", "budgets": {"turnTimeoutMs": 1_000}, "at": 1_000},
        {"type": "turn.started", "node": "agent", "at": 2_000},
    ])  # fmt: skip

    due = feed.engine.next_deadline(feed.state)

    assert (due.about, due.due_ms) == ("BUDGET001", 3_000)


# Evidence.


def test_the_evidence_of_a_repeated_call_has_tool_turns_and_hashes() -> None:
    halt = decisions([AGAIN, *[MAKE] * 3])[-1]
    assert halt.message == (
        "run returned the same result for the same arguments at turns 1, 2 and 3, with no new information in between."
    )
    evidence = halt.evidence
    assert (evidence.kind, evidence.tool, evidence.count, evidence.match) == ("repeated_call", "run", 3, "exact")
    assert (evidence.turns, halt.onset) == ([1, 2, 3], 1)
    assert evidence.args_hash == hex16(h64('run\0{"cmd":"make"}'))
    assert evidence.result_hash == hex16(content("error: no rule").exact)


def test_a_halt_carries_the_latest_outputs_artifacts_and_test_results() -> None:
    outputs = [{"node": "coder", "output": f"text {n}", "artifact": f"+{n}"} for n in range(9)]
    tests = [{"node": "verifier", "tests": {"failed": [f"t{n}" for n in range(k)], "total": 9}} for k in (3, 2, 1)]
    evidence = decisions([*outputs, *tests, *[MAKE] * 3])[-1].evidence
    assert evidence.output_hashes == [hex16(content(f"text {n}").norm) for n in range(4, 9)]
    assert evidence.artifact_hashes == [hex16(content(f"+{n}").norm) for n in range(4, 9)]
    assert evidence.failing_trend == [3, 2, 1]
    assert evidence.failing_signatures == [hex16(h64("\n".join(f"t{n}" for n in range(k)))) for k in (3, 2, 1)]


def test_the_evidence_of_an_oscillation_has_its_period() -> None:
    halt = decisions([{"node": node, "output": node} for node in "abc" * 2])[-1]
    evidence = halt.evidence
    assert (evidence.period, evidence.count, evidence.turns, halt.onset) == (3, 2, [3, 4, 5], 0)
    assert len(set(evidence.hashes or [])) == 3
    assert (halt.halt_reason, halt.terminal_status) == ("oscillating", "aborted_stuck")


@pytest.mark.parametrize("start", range(3))
def test_a_loop_is_the_same_whichever_element_comes_first(start: int) -> None:
    rotated = "abc"[start:] + "abc"[:start]
    found = decisions([{"node": node, "output": node} for node in rotated * 2 + "abc" * 2])
    assert [one.severity for one in found] == ["halt"]


def test_the_evidence_names_failing_tests() -> None:
    report = {"node": "verifier", "tests": {"failed": ["test_a", "test_b"], "total": 5}}
    halt = decisions([report] * 3)[-1]
    evidence = halt.evidence
    assert (evidence.failing, evidence.failing_tests, evidence.best) == (2, ["test_a", "test_b"], 2)
    assert (halt.code, halt.message) == ("STALL002", "The same 2 tests have failed in 3 consecutive iterations.")


def test_the_evidence_shows_the_first_error_redacted() -> None:
    failed = {"node": "executor", "errors": [{"message": "login failed: password=hunter2"}]}
    halt = decisions([failed] * 2)[-1]
    assert halt.evidence.first_error == "login failed: password=<redacted>"
    assert b"hunter2" not in msgspec.json.encode(halt)
    assert halt.halt_reason == "repeated_error"


def test_a_decision_carries_scope_and_labels() -> None:
    scope = {"workflow": "w", "tenant": "t", "user": "u"}
    started = {"type": "run.started", **scope}
    halt = decisions([started, *[MAKE | {"labels": {"team": "red"}, "task_id": "7"}] * 3])[-1]
    assert {name: getattr(halt, name) for name in scope} == scope
    assert (halt.node, halt.task_id, halt.labels) == ("agent", "7", {"team": "red"})


def test_the_first_event_that_names_a_scope_fixes_it() -> None:
    feed = Feed()
    feed.all([AGAIN | {"tenant": "first"}, AGAIN | {"tenant": "second", "user": "u"}])
    assert (feed.state.scope.tenant, feed.state.scope.user) == ("first", "u")


# Commands, ends, duplicates.


def test_a_stop_command_halts_at_once() -> None:
    [stop] = decisions([AGAIN, {"type": "operator.stop", "by": "ann", "reason": "enough"}])
    assert (stop.code, stop.severity) == ("OPERATOR001", "halt")
    assert (stop.halt_reason, stop.terminal_status) == ("user_stop", "stopped")
    assert (stop.evidence.by, stop.evidence.reason) == ("ann", "enough")


def test_a_run_can_be_stopped_before_its_first_turn() -> None:
    [stop] = decisions([{"type": "operator.stop"}])
    assert stop.message == "Stopped by an operator."


def test_duplicates_are_recognised_among_the_events_a_producer_may_resend() -> None:
    feed = Feed()
    events = [call("read", n, f"{n}") | {"event_id": f"e{n}"} for n in range(24)]
    feed.all([*events, *events])
    assert (feed.state.turns, feed.state.duplicates) == (24, 24)


def test_events_without_an_id_are_never_duplicates() -> None:
    feed = Feed()
    feed.all([AGAIN] * 5)
    assert (feed.state.turns, feed.state.duplicates) == (5, 0)


def test_a_reused_run_id_starts_again_and_keeps_its_position_in_the_log() -> None:
    feed = Feed()
    feed.state.partition = 3
    again = {"type": "run.started", "event_id": "again"}
    first = [MAKE | {"event_id": "once", "workflow": "w"}, MAKE, {"type": "run.finished"}]
    for offset, raw in enumerate([*first, again], 77):
        feed.outcome(event_of({"run_id": "r", **raw}), offset=offset)
    run = feed.state
    assert (run.partition, run.offset, run.scope.workflow, run.id_reuses) == (3, 80, "w", 1)
    assert (run.turns, run.escalation.severity) == (0, 0)
    feed.all([first[0], again])
    assert (run.turns, run.duplicates) == (0, 2)


def test_decisions_of_a_reused_run_id_have_new_ids() -> None:
    """Readers of the first run's warning must not skip the second run's as a duplicate."""
    once = [MAKE] * 2
    found = decisions([*once, {"type": "run.finished"}, {"type": "run.started"}, *once])
    assert [one.severity for one in found] == ["warn", "warn"]
    assert len({one.id for one in found}) == 2


def test_an_execution_after_one_that_was_halted_repeats_nothing_of_it() -> None:
    """The run stays halted, but reading the same three files once more each time is no loop."""
    reads = [call("read", n, f"text {n}") for n in range(3)]
    executions = [{"type": "run.started"}, *reads, {"type": "run.finished"}] * 6
    feed = Feed()
    [_, halt] = feed.all([MAKE] * 3)
    assert halt.severity == "halt"
    assert not [one for one in feed.all([{"type": "run.finished"}, *executions]) if one.severity == "halt"]
    assert feed.state.halted == 2


# Time and spend.


def test_log_time_never_goes_back() -> None:
    feed = Feed()
    times = [None, 1_767_225_600_000, 1_767_225_500_000, None, 1_767_225_700_000]
    seen = []
    for at in times:
        feed.raw(AGAIN | ({} if at is None else {"at": at}))
        seen.append(feed.state.at_ms)
    assert seen == [0, 1_767_225_600_000, 1_767_225_600_000, 1_767_225_600_000, 1_767_225_700_000]
    assert feed.state.started_ms == 1_767_225_600_000


def test_a_decision_on_events_without_a_time_has_none() -> None:
    assert decisions([AGAIN] * 2)[0].at is None
    assert rfc3339(1_767_225_600_250) == "2026-01-01T00:00:00.250Z"


def test_spend_is_summed_in_integers() -> None:
    feed = Feed()
    usage = {"input_tokens": 3, "output_tokens": 2, "cached_tokens": 1, "cost_usd": "0.1", "duration_ms": 5}
    feed.all([{"node": "a", "usage": usage}] * 10)
    feed.raw({"node": "a", "usage": {"total_tokens": 100}})
    feed.raw({"node": "a", "usage": {"duration_ms": 7}})
    ledger = feed.state.ledger
    assert (ledger.input_tokens, ledger.output_tokens, ledger.cached_tokens) == (30, 20, 10)
    assert (ledger.total_tokens, ledger.duration_ms, ledger.cost_usd_micro) == (150, 57, 1_000_000)
    assert ledger.unpriced == 1


def test_a_budget_is_exceeded_above_its_limit_and_not_at_it() -> None:
    spend = [{"node": "a", "output": f"{n}", "usage": {"cost_usd": "0.10"}} for n in range(12)]
    found = reported([{"type": "run.started", "budgets": {"maxCostUsd": "1.00"}}, *spend])
    assert found == [("BUDGET007", "warn", 7), ("BUDGET007", "halt", 10)]


def test_each_of_two_limits_of_a_node_is_reported() -> None:
    limits = {"type": "run.started", "budgets": {"maxTurnsPerNode": 2, "maxRuntimeMsPerNode": 10}}
    turns = [{"node": "a", "output": f"{n}", "usage": {"duration_ms": 6}} for n in range(2)]
    found = decisions([limits, *turns])
    assert found[-1].severity == "halt"
    assert found[-1].evidence.unit == "ms"


# Status.


def test_a_status_shows_state_and_severity_of_a_run() -> None:
    feed = Feed()
    assert feed.engine.status(feed.state, "r").status == "running"
    [warning] = feed.all([MAKE] * 2)
    assert feed.engine.status(feed.state, "r").severity == warning.severity == "warn"
    [halt] = feed.raw(MAKE)
    status = feed.engine.status(feed.state, "r", halt)
    assert (status.status, status.severity, status.halt, status.turns) == ("halted", "halt", halt, 3)
    feed.raw({"type": "run.finished"})
    assert feed.engine.status(feed.state, "r").status == "halted"


@pytest.mark.parametrize(("budgets", "badge"), [({}, "Loop 2"), ({"maxCycleIterations": 8}, "Loop 2/8")])
def test_a_badge_shows_the_iterations(budgets: dict[str, int], badge: str) -> None:
    feed = Feed()
    assert feed.engine.status(feed.state, "r").badge is None
    feed.all([{"type": "run.started", "budgets": budgets}, *({"node": node} for node in "ababa")])
    assert feed.engine.status(feed.state, "r").badge == badge
