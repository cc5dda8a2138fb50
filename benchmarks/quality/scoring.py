"""Score alarms against labels: small pure functions, modelled on the drift evaluation of river.

An *alarm* is one control event. It belongs to the episode that contains its position, or it is a false alarm. A halt
of a loop that should only warn is also a false alarm. Undefined figures are `nan`: recall without planted episodes,
and delay without found ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

from benchmarks.quality.labels import Episode

Z: Final = 1.959963984540054  # of the normal distribution: 95 % lie within
TAIL: Final = 0.025  # what an interval of 95 % leaves out on each side
ANY: Final = "any"  # as the code of an alarm: a rule without codes; in `also` of an episode: any detector


class Alarm(NamedTuple):
    """One control event: its code, whether it halts, its position in the trace, its id, its message, and its run."""

    code: str
    halts: bool
    position: int
    id: str
    message: str = ""
    run_id: str = ""


class Matching(NamedTuple):
    """The alarms of each episode (by its index in the list of episodes), and those outside all episodes."""

    hits: dict[int, list[Alarm]]
    false_alarms: list[Alarm]


def match(alarms: Iterable[Alarm], episodes: Sequence[Episode]) -> Matching:
    """Assign each alarm to the episode that contains it, or to the false alarms."""
    hits: dict[int, list[Alarm]] = {}
    false_alarms = []
    for alarm in alarms:
        for number, episode in enumerate(episodes):
            if episode.onset <= alarm.position <= episode.end and (not alarm.halts or episode.halt_at is not None):
                hits.setdefault(number, []).append(alarm)
                break
        else:
            false_alarms.append(alarm)
    return Matching(hits, false_alarms)


def detection(episode: Episode, alarms: Iterable[Alarm]) -> Alarm | None:
    """Return the first alarm that is sufficient for this episode: a halt if it must be halted, else any alarm, from one
    of its detectors."""
    codes = {episode.code, *episode.also}
    enough = (
        alarm
        for alarm in alarms
        if (alarm.halts or episode.halt_at is None) and (alarm.code in codes or ANY in (alarm.code, *codes))
    )
    return min(enough, key=lambda alarm: alarm.position, default=None)


def warned_in_time(episode: Episode, alarms: Iterable[Alarm]) -> bool | None:
    """Return whether anything was reported when the warning threshold was met; None without such a threshold."""
    if episode.warn_at is None:
        return None
    return any(alarm.position <= episode.warn_at for alarm in alarms)


def recall(found: int, planted: int) -> float:
    """The share of planted episodes that were found."""
    return found / planted if planted else math.nan


def delay(episode: Episode, alarm: Alarm) -> int:
    """Return the events from the threshold to the alarm; negative if the alarm came before the threshold was met."""
    return alarm.position - episode.due


def typical(delays: Sequence[int]) -> float:
    """The median delay."""
    return median(delays) if delays else math.nan


def early(delays: Iterable[int]) -> int:
    """Return how many alarms came before the catalogue's threshold was met."""
    return sum(delay < 0 for delay in delays)


def per_thousand(count: int, turns: int) -> float:
    """Return a count as a rate per 1 000 turns."""
    return 1_000 * count / turns if turns else math.nan


def duplicate_halts(matching: Matching) -> list[Alarm]:
    """Return redundant halts: each after the first of an episode, and any with a repeated id."""
    again, ids = [], set()
    for alarms in [*matching.hits.values(), *([alarm] for alarm in matching.false_alarms)]:
        for number, alarm in enumerate(alarm for alarm in alarms if alarm.halts):
            if number or alarm.id in ids:
                again.append(alarm)
            ids.add(alarm.id)
    return again


def repeated_warnings(matching: Matching) -> list[Alarm]:
    """Return repeated warnings of one episode: by one detector, about one run, in the same words except for numbers.

    A limit on a tree of agents warns the newborn and each of its ancestors: one warning for each run.
    """
    again = []
    for alarms in matching.hits.values():
        known: set[tuple[str, str, str]] = set()
        for alarm in alarms:
            words = alarm.code, alarm.run_id, alarm.message.translate(_NO_DIGITS)
            if not alarm.halts and words in known:
                again.append(alarm)
            known.add(words)
    return again


_NO_DIGITS: Final = dict.fromkeys(map(ord, "0123456789"))


def honest_turns(events: int, episodes: Iterable[Episode]) -> int:
    """Return the events outside all episodes, the work that must not be halted."""
    return events - sum(episode.end - episode.onset + 1 for episode in episodes)


def wilson(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    share, spread = count / of, Z * Z / of
    middle, half = share + spread / 2, Z * math.sqrt(share * (1 - share) / of + spread / of / 4)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def poisson(count: int) -> tuple[float, float]:
    """Return the exact 95 % interval of the mean of a Poisson count."""
    low = _mean_with(lambda mean: 1 - _at_most(count - 1, mean) < TAIL, count) if count else 0.0
    return low, _mean_with(lambda mean: _at_most(count, mean) > TAIL, count)


def _at_most(count: int, mean: float) -> float:
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


def _mean_with(too_low: Callable[[float], bool], count: int) -> float:
    low, high = 0.0, 2.0 * count + 10
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high


def rate(count: int, turns: int) -> str:
    """Return a count as a rate per 1 000 turns, with its interval."""
    low, high = poisson(count)
    return (
        f"{count}: {1000 * count / turns:.2f} ({1000 * low / turns:.2f} to {1000 * high / turns:.2f})" if turns else ""
    )
