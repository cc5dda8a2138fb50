"""``python -m benchmarks.quality.storms``: fleets whose provider refuses calls, with the breaker and without it.

The storm is the one of a public complaint (munin#777): a 429 storm took four organisations offline for hours, because
every run retried by itself. Here the provider refuses calls for as long as its quota is used up, and refused calls use
it up, too. Honest fleets get a few 429s that a retry solves.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import Final

from streamproc.core.local_providers import LocalProviders
from streamproc.core.providers import ProviderRules
from streamproc.model.wire import ANSWERED, FAILED_RETRYABLE, WIRE_VERSION, ModelCalled
from streamproc.policy import load_policy

SEEDS: Final = 20
NAME: Final = "anthropic/claude-sonnet-4-5"
START_MS: Final = 1_800_000_000_000
RUNS: Final = 40  # of four organisations
THINK_MS: Final = 6_000  # between two calls of a run, on average
FIRST_RETRY_MS: Final = 1_000
RETRY_MAX_MS: Final = 8_000
LOOK_MS: Final = 250  # how often a caller that waits looks
MINUTE_MS: Final = 60_000


@dataclass
class Fleet:
    """What became of a fleet."""

    calls: int = 0
    refused: int = 0
    opened_at_call: int = 0  # the call at which the breaker opened first; 0: it did not
    openings: int = 0
    probes: int = 0  # the most permits in one episode
    offline_ms: int = 0  # from the first refused call until calls are answered again


def play(seed: int, *, storm: bool, obeys: bool, rules: ProviderRules | None = None) -> Fleet:
    """Play half an hour of a fleet. In a storm, the provider answers at most so many calls a minute, refused ones
    included, from the fifth minute to the fifteenth; an honest fleet gets one 429 in fifty, alone."""
    chance = random.Random(seed)
    policy = load_policy()
    rules = rules or policy.providers
    breakers, fleet = LocalProviders(rules, policy.ref), Fleet()
    recent: list[int] = []  # times of the calls of the last minute
    waiting: list[tuple[int, int, int, int]] = []  # time, tie, run, refusals in a row
    for run in range(RUNS):
        heapq.heappush(waiting, (chance.randrange(THINK_MS), run, run, 0))
    first_refused, tie = 0, RUNS
    while waiting and (item := heapq.heappop(waiting))[0] < 30 * MINUTE_MS:
        now_ms, _, run, refusals = item
        tie += 1
        permit = f"{run}/{tie}"
        if obeys:
            held, events = breakers.ask(NAME, f"run-{run}", START_MS + now_ms, permit)
            _note(fleet, events)
            if held is not None:
                heapq.heappush(waiting, (now_ms + LOOK_MS, tie, run, refusals))
                continue
        recent = [at_ms for at_ms in recent if at_ms > now_ms - MINUTE_MS] + [now_ms]
        in_storm = 5 * MINUTE_MS <= now_ms < 15 * MINUTE_MS
        limited = in_storm or (first_refused and not fleet.offline_ms and len(recent) > 2 * RUNS)
        refused = bool(limited) if storm else refusals == 0 and chance.random() < 0.02
        fleet.calls += 1
        fleet.refused += refused
        call = ModelCalled(
            w=WIRE_VERSION, run_id=f"run-{run}", model=NAME, outcome=FAILED_RETRYABLE if refused else ANSWERED,
            status=429 if refused else 200, permit=permit,
        )  # fmt: skip
        _note(fleet, breakers.step(call, START_MS + now_ms))
        if refused:
            first_refused = first_refused or now_ms
            pause_ms = min(FIRST_RETRY_MS << min(refusals, 10), RETRY_MAX_MS)
            heapq.heappush(waiting, (now_ms + chance.randint(pause_ms // 2, pause_ms), tie, run, refusals + 1))
        else:
            if storm and first_refused and now_ms > 15 * MINUTE_MS:
                fleet.offline_ms = fleet.offline_ms or now_ms - first_refused
            heapq.heappush(waiting, (now_ms + chance.randint(THINK_MS // 2, 3 * THINK_MS // 2), tie, run, 0))
    if storm and first_refused and not fleet.offline_ms:
        fleet.offline_ms = 30 * MINUTE_MS - first_refused
    return fleet


def _note(fleet: Fleet, events: list) -> None:  # type: ignore[type-arg]
    for event in events:
        state = event.provider
        if state.state == "open":
            fleet.openings += 1
            fleet.opened_at_call = fleet.opened_at_call or fleet.calls
        fleet.probes = max(fleet.probes, len(state.permits))


def main() -> None:
    """Play the fleets and print what became of them."""
    storms = [(play(seed, storm=True, obeys=False), play(seed, storm=True, obeys=True)) for seed in range(SEEDS)]
    honest = [play(seed, storm=False, obeys=True) for seed in range(SEEDS)]
    before = sum(alone.refused for alone, _ in storms)
    after = sum(guarded.refused for _, guarded in storms)
    minutes = [sum(one[n].offline_ms for one in storms) / SEEDS / MINUTE_MS for n in (0, 1)]
    print(f"storms of {RUNS} runs found: {sum(bool(one.openings) for _, one in storms)} of {SEEDS}")
    print(f"refused calls: {before // SEEDS} a storm without the breaker, {after // SEEDS} with it")
    print(f"offline: {minutes[0]:.1f} minutes without the breaker, {minutes[1]:.1f} with it (the provider: 10.0)")
    print(f"most probes at once: {max(one.probes for _, one in storms)} of {ProviderRules().probes} allowed")
    lone = sum(one.refused for one in honest)
    print(f"honest fleets: {sum(one.openings for one in honest)} openings in {SEEDS}, with {lone} lone 429s")


if __name__ == "__main__":
    main()
