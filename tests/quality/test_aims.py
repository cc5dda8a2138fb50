"""The targets on one seed or a few of each kind. `make quality` measures them on thousands of runs."""

from __future__ import annotations

from typing import Final

import pytest

from benchmarks.quality import scoring
from benchmarks.quality.catalogue import TITLES
from benchmarks.quality.tally import Tally
from benchmarks.quality.traces import LOOPS, Kind, between_turns, honest, name_of, presets, trace_of
from benchmarks.quality.watchers import breaker_of_preset
from streamproc.detectors import BY_CODE

SEEDS: Final = 2


# Not loops: an unreadable graph, and operators' commands with their acknowledgement. Only a policy limits the accounts
# of users and tenants.
NOT_MEASURED: Final = {"GRAPH002", "BUDGET010", "OPERATOR001", "OPERATOR002", "OPERATOR003"}

FOUND: Final = [kind for kind in LOOPS if {episode.code for episode in trace_of(kind, 0).episodes} <= set(BY_CODE)]


def tally(kind: Kind, seeds: int) -> Tally:
    found = Tally()
    for seed in range(seeds):
        trace = trace_of(kind, seed)
        found.add_trace(trace, list(breaker_of_preset(trace.preset or "standard")(trace.events)))
    return found


@pytest.mark.parametrize("fragment", [*honest.FRAGMENTS, *between_turns.FRAGMENTS, *between_turns.HONEST], ids=name_of)
def test_healthy_work_is_not_halted(fragment: Kind) -> None:
    assert not tally(fragment, SEEDS).false_halts


@pytest.mark.parametrize("kind", presets.HONEST, ids=name_of)
def test_healthy_work_of_a_preset_is_not_halted_under_it(kind: Kind) -> None:
    assert not tally(kind, 9).false_halts


@pytest.mark.parametrize("kind", FOUND, ids=name_of)
def test_a_planted_loop_is_reported_once_when_its_threshold_is_met(kind: Kind) -> None:
    found = tally(kind, 1)

    assert [scoring.delay(outcome.episode, outcome.alarm) for outcome in found.outcomes if outcome.alarm] == [
        0 for _ in found.outcomes
    ]
    assert all(outcome.warned is not False for outcome in found.outcomes)
    assert not found.duplicates
    assert not found.repeated_warnings


def test_every_detector_is_measured() -> None:
    assert set(BY_CODE) - NOT_MEASURED <= set(TITLES)
    assert set(TITLES) <= {episode.code for kind in LOOPS for episode in trace_of(kind, 0).episodes}
