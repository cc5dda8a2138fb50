"""The benchmark separates the engine from broken engines, from simple rules, and from a silent watcher."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.catalogue import TITLES
from benchmarks.quality.grafts import grafted
from benchmarks.quality.labels import RawEvent, Trace
from benchmarks.quality.real import RealRun
from benchmarks.quality.rows import Row, rows
from benchmarks.quality.scoring import Alarm
from benchmarks.quality.tally import tallies
from benchmarks.quality.traces import HONEST, LOOPS, name_of, trace_of
from benchmarks.quality.watchers import (
    OURS,
    SIMPLE_RULES,
    Watcher,
    at_most_25_steps,
    breaker,
    same_call_3_of_10,
    same_output_3_in_a_row,
)

PLAIN = ("repeated_call.", "repeated_output.", "no_progress.unchanged", "polling.", "reading.", "batches.")


@cache
def plain_traces() -> tuple[Trace, ...]:
    """Return some kinds of loops and of healthy work, short runs only."""
    kinds = [kind for kind in (*LOOPS, *HONEST) if name_of(kind).startswith(PLAIN) and "long_run" not in name_of(kind)]
    return tuple(trace_of(kind, 0) for kind in kinds)


def overall(watcher: Watcher, traces: Sequence[Trace] | None = None) -> Row:
    """Return the row of all detectors."""
    chosen = plain_traces() if traces is None else traces
    return rows(tallies({OURS: watcher}, chosen, []), TITLES)[-1]


@pytest.fixture
def under(tmp_path: Path) -> Any:
    """Return the engine under a policy in YAML."""

    def build(policy: str) -> Watcher:
        (tmp_path / "policy.yaml").write_text(policy)
        return breaker(tmp_path / "policy.yaml")

    return build


@cache
def unbroken() -> Row:
    return overall(breaker())


def test_the_engine_finds_plain_loops_in_time_and_reports_them_once() -> None:
    assert unbroken().recall == 1.0
    assert unbroken().delay == 0
    assert unbroken().early == 0
    assert unbroken().duplicates == 0


def test_an_engine_without_a_detector_finds_less(under: Any) -> None:
    assert overall(under("detectors: {LOOP003: false}")).recall < unbroken().recall - 0.3


def test_an_engine_with_a_higher_threshold_is_late(under: Any) -> None:
    later = overall(under("detectors: {LOOP003: {halt: 6, masked_halt: 9, unanswered_halt: 9}}"))

    assert later.delay_most > unbroken().delay_most
    assert later.recall < unbroken().recall


def test_an_engine_with_a_lower_threshold_is_too_early_and_halts_healthy_work(under: Any) -> None:
    too_early = overall(under("detectors: {LOOP003: {halt: 2}, LOOP001: {halt: 2}}"))

    assert too_early.early > 5
    assert too_early.false_halts > unbroken().false_halts


def test_an_engine_without_warnings_warns_less_often_in_time(under: Any) -> None:
    silent = overall(under("detectors: {LOOP003: {warn: 0, masked_warn: 0, unanswered_warn: 0}, LOOP001: {warn: 0}}"))

    assert silent.warned < unbroken().warned / 2
    assert silent.recall == unbroken().recall


def test_a_silent_watcher_finds_nothing_and_halts_nothing() -> None:
    row = overall(lambda events: iter(()))

    assert (row.found, row.false_halts, row.duplicates) == (0, 0, 0)
    assert any("found 0.000" in fault for fault in row.missed_targets())


def test_a_watcher_that_halts_every_turn_is_exposed() -> None:
    def trigger_happy(events: Sequence[RawEvent]) -> Iterator[Alarm]:
        return (Alarm("any", True, position, str(position)) for position in range(len(events)))

    row = overall(trigger_happy)

    assert row.recall == 1.0
    assert row.early > 10
    assert row.false_halts_per_1000 > 900
    assert row.duplicates > 50


def test_a_watcher_that_repeats_each_alarm_is_exposed() -> None:
    ours = breaker()

    def twice(events: Sequence[RawEvent]) -> Iterator[Alarm]:
        return (alarm for alarm in ours(events) for _ in range(2))

    row = overall(twice)

    assert row.duplicates >= row.found
    assert row.repeated_warnings > 0


@pytest.mark.parametrize("rule", SIMPLE_RULES.values(), ids=list(SIMPLE_RULES))
def test_a_simple_rule_finds_less_and_halts_healthy_work(rule: Watcher) -> None:
    row = overall(rule)

    assert row.recall < 0.8
    assert row.false_halts > 0


def call(args: object) -> dict[str, Any]:
    return {"node": "a", "tool_calls": [{"name": "ls", "args": args, "result": ""}]}


def test_the_simple_rules_match_their_names() -> None:
    said = [{"node": "a", "output": "x"}] * 5

    assert [alarm.position for alarm in same_call_3_of_10([call({}), call(1), call({}), call({}), call({})])] == [3]
    assert not list(same_call_3_of_10([call({}), call({}), *(call(n) for n in range(9)), call({})]))
    assert [alarm.position for alarm in same_output_3_in_a_row(said)] == [2]
    assert [alarm.position for alarm in at_most_25_steps([call(n) for n in range(99)])] == [25]
    assert not list(at_most_25_steps([{"type": "user.message"}] * 99))


def run(events: list[RawEvent], *, solved: bool) -> RealRun:
    return RealRun("test", f"run-{solved}", [{"run_id": f"run-{solved}", **event} for event in events], solved)


def test_a_halt_is_only_false_if_the_run_was_solved() -> None:
    stuck = [call({})] * 10
    found = tallies({OURS: breaker()}, [], [run(stuck, solved=True), run(stuck, solved=False)])
    row = rows(found, TITLES)[-1]

    assert (row.solved_halts, row.other_runs_halted) == (1, 1)
    assert row.solved_halts_per_1000 == 100
    assert (row.solved_warnings, row.solved_warnings_per_1000) == (1, 100)
    assert any("100.00 warnings per 1 000 solved turns" in fault for fault in row.missed_targets())
    assert found[OURS].real.other_turns_after_halt == 7


def test_a_repeat_is_grafted_on_a_call_that_its_run_makes_only_once() -> None:
    events = [call({}), call({}), call({"f": 1}), {"node": "a", "output": "done"}]
    [trace] = grafted([run(events, solved=True), run(events, solved=False)])
    [episode] = trace.episodes

    assert (episode.onset, episode.warn_at, episode.halt_at) == (2, 3, 4)
    assert len({str(event) for event in trace.events[episode.onset : episode.end + 1]}) == 1
    assert overall(breaker(), [trace]).found == 1


def test_the_rest_of_a_recorded_run_is_not_counted_as_healthy() -> None:
    events = [call({})] * 5 + [call({"f": 1})]
    [trace] = grafted([run(events, solved=True)])
    row = overall(breaker(), [trace])

    assert row.found == 1
    assert row.false_halts == 0
    assert math.isnan(row.false_halts_per_1000)


def test_every_detector_has_a_row() -> None:
    named = [row.name for row in rows(tallies({OURS: breaker()}, [], []), TITLES)]

    assert named == [*(f"{code} {title}" for code, title in TITLES.items()), "**all detectors**"]
