"""Alarms against labels: small pure functions, after the drift evaluation of river.

An *alarm* is one control event. It belongs to the episode in whose events it falls, or it is a false alarm. A halt of
a loop that must only be warned of is a false alarm, too. Undefined is `nan`: there is no recall where nothing was
planted, and no delay where nothing was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

from benchmarks.quality.labels import Episode

ANY: Final = "any"  # as the code of an alarm: a rule without codes; among those of an episode: whoever tells it


class Alarm(NamedTuple):
    """One control event: which detector, whether it halts, at which event of the trace, and its id."""

    code: str
    halts: bool
    position: int
    id: str
    message: str = ""


class Matching(NamedTuple):
    """The alarms of each episode (by its place in the list of episodes), and those of none."""

    hits: dict[int, list[Alarm]]
    false_alarms: list[Alarm]


def match(alarms: Iterable[Alarm], episodes: Sequence[Episode]) -> Matching:
    """Give each alarm to the episode within which it falls, or to the pile of false alarms."""
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
    """The first alarm that is enough for this episode: a halt where it must be halted, else anything; and told by a
    detector that knows what it is."""
    codes = {episode.code, *episode.also}
    enough = (
        alarm
        for alarm in alarms
        if (alarm.halts or episode.halt_at is None) and (alarm.code in codes or ANY in (alarm.code, *codes))
    )
    return min(enough, key=lambda alarm: alarm.position, default=None)


def warned_in_time(episode: Episode, alarms: Iterable[Alarm]) -> bool | None:
    """Whether anything was told when the threshold for a warning was met; None where there is none."""
    if episode.warn_at is None:
        return None
    return any(alarm.position <= episode.warn_at for alarm in alarms)


def recall(found: int, planted: int) -> float:
    """The share of planted episodes that were found."""
    return found / planted if planted else math.nan


def delay(episode: Episode, alarm: Alarm) -> int:
    """Events from the threshold to the alarm; below 0 where the alarm came before the threshold was met."""
    return alarm.position - episode.due


def typical(delays: Sequence[int]) -> float:
    """The median delay."""
    return median(delays) if delays else math.nan


def early(delays: Iterable[int]) -> int:
    """How many came before the catalogue's threshold was met: right in the end, and too hasty."""
    return sum(delay < 0 for delay in delays)


def per_thousand(count: int, turns: int) -> float:
    """A count as a rate per 1 000 turns."""
    return 1_000 * count / turns if turns else math.nan


def duplicate_halts(matching: Matching) -> list[Alarm]:
    """Halts that tell nothing new: each after the first of an episode, and any whose id was told before."""
    again, ids = [], set()
    for alarms in [*matching.hits.values(), *([alarm] for alarm in matching.false_alarms)]:
        for number, alarm in enumerate(alarm for alarm in alarms if alarm.halts):
            if number or alarm.id in ids:
                again.append(alarm)
            ids.add(alarm.id)
    return again


def repeated_warnings(matching: Matching) -> list[Alarm]:
    """Warnings of one episode by a detector that had warned of it before, in the same words but for numbers."""
    again = []
    for alarms in matching.hits.values():
        known: set[tuple[str, str]] = set()
        for alarm in alarms:
            words = alarm.code, alarm.message.translate(_NO_DIGITS)
            if not alarm.halts and words in known:
                again.append(alarm)
            known.add(words)
    return again


_NO_DIGITS: Final = dict.fromkeys(map(ord, "0123456789"))


def honest_turns(events: int, episodes: Iterable[Episode]) -> int:
    """Events outside all episodes: the work that must not be halted."""
    return events - sum(episode.end - episode.onset + 1 for episode in episodes)
