"""A public complaint as a fleet (munin#777): a storm of 429s in which every run retries by itself."""

from __future__ import annotations

import pytest

from benchmarks.quality.storms import play
from streamproc.core.providers import ProviderRules


@pytest.mark.parametrize("seed", [0, 1])
def test_the_breaker_opens_in_the_storm_and_saves_nearly_all_refused_calls(seed: int) -> None:
    alone, guarded = play(seed, storm=True, obeys=False), play(seed, storm=True, obeys=True)
    assert alone.openings > 0  # who does not obey is seen all the same
    calls_before = 5 * 60 * 40 // 6  # five minutes of 40 runs that call every six seconds
    assert 0 < guarded.opened_at_call - calls_before < 300  # half of the calls of a minute
    assert guarded.refused * 20 < alone.refused
    assert guarded.offline_ms < alone.offline_ms
    assert 1 <= guarded.probes <= ProviderRules().probes


def test_lone_refusals_that_a_retry_solves_open_nothing() -> None:
    fleet = play(3, storm=False, obeys=True)
    assert fleet.refused > 100
    assert fleet.openings == 0
