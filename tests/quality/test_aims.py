"""The aims in their fast form: one seed or a few of each kind. `make quality` measures them on thousands of runs."""

from __future__ import annotations

from typing import Final

import pytest

from benchmarks.quality import scoring
from benchmarks.quality.catalogue import TITLES
from benchmarks.quality.tally import Tally
from benchmarks.quality.traces import LOOPS, Kind, honest, name_of, trace_of
from benchmarks.quality.watchers import breaker
from streamproc.detectors import BY_CODE

SEEDS: Final = 2

# What is known to be wrong and not yet mended: the engine halts this honest work, or misses these loops.
OPEN: Final = {
    "siblings.agents_that_read_the_same_file",
    "siblings.workers_that_start_alike",
    "siblings.workers_of_one_name",
    "polling.polls_of_several_agents",
    "teamwork.green_again_after_a_change",
    "teamwork.queries_that_differ",
    "teamwork.errors_that_differ",
    "teamwork.a_person_who_repairs",
    "teamwork.a_person_who_tests",
    "debugging.errors_in_one_frame",
    "batches.the_same_verdict_for_each_task",
    "batches.the_diff_of_every_turn",
    "batches.the_tests_of_every_turn",
    "oscillation.texts_of_a_tool_user",
    "polling.waiting_for_a_colleague",
    "teamwork.a_person_who_agrees",
    "teamwork.a_metric_that_falls",
    "stagnation.near_results",
    "hand_overs.nearly_the_same_query",
    "hand_overs.monologue",
    "failures.recurring_error_among_others",
    "no_progress.same_failures_of_two_suites",
}

FOUND: Final = [
    kind
    for kind in LOOPS
    if name_of(kind) not in OPEN and {episode.code for episode in trace_of(kind, 0).episodes} <= set(BY_CODE)
]
LEFT_ALONE: Final = [fragment for fragment in honest.FRAGMENTS if name_of(fragment) not in OPEN]


def tally(kind: Kind, seeds: int) -> Tally:
    found, watch = Tally(), breaker()
    for seed in range(seeds):
        trace = trace_of(kind, seed)
        found.add_trace(trace, list(watch(trace.events)))
    return found


@pytest.mark.parametrize("fragment", LEFT_ALONE, ids=name_of)
def test_honest_work_is_not_halted(fragment: Kind) -> None:
    assert not tally(fragment, SEEDS).false_halts


@pytest.mark.parametrize("kind", FOUND, ids=name_of)
def test_a_planted_loop_is_told_when_its_threshold_is_met_and_once(kind: Kind) -> None:
    found = tally(kind, 1)

    assert [scoring.delay(outcome.episode, outcome.alarm) for outcome in found.outcomes if outcome.alarm] == [
        0 for _ in found.outcomes
    ]
    assert all(outcome.warned is not False for outcome in found.outcomes)
    assert not found.duplicates


def test_every_detector_of_loops_progress_and_errors_is_measured() -> None:
    assert {code for code in BY_CODE if code.startswith(("LOOP", "STALL", "ERROR"))} <= set(TITLES)
