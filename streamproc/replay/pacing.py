"""When to send each event of a file: as fast as possible, at a fixed rate, or spaced by the events' own times."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from streamproc.errors import InvalidSettings
from streamproc.replay.source import Line

_FACTOR: Final = re.compile(r"(\d+(?:\.\d+)?)x")


class SendingPace(NamedTuple):
    """A speed: `per_s` events per second, or `factor` times the recorded speed; with neither, no delays."""

    per_s: float | None = None
    factor: float | None = None


class Timed(NamedTuple):
    """An event and its due time, in seconds after the first."""

    due_s: float
    line: Line


def read_pace(text: str) -> SendingPace:
    """Parse ``max``, ``200`` (events per second), ``realtime`` or ``10x``. Raises `InvalidSettings`."""
    if text == "max":
        return SendingPace()
    if text == "realtime":
        return SendingPace(factor=1.0)
    factor = _FACTOR.fullmatch(text)
    try:
        value = float(factor[1] if factor else text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise InvalidSettings(
            f"speed {text!r}: use max, a number of events per second, realtime, or a factor such as 10x"
        )
    return SendingPace(factor=value) if factor else SendingPace(per_s=value)


def timed(lines: Iterable[Line], pace: SendingPace) -> Iterator[Timed]:
    """Return every event with its due time.

    With a factor, all runs start together, and each event keeps its distance from the first of its run. An event
    without a time is due with the one before it. A factor needs the whole file in memory; the other paces do not.
    """
    if pace.factor is not None:
        yield from _by_times(lines, pace.factor)
        return
    for number, line in enumerate(lines):
        yield Timed(number / pace.per_s if pace.per_s else 0.0, line)


def _by_times(lines: Iterable[Line], factor: float) -> Iterator[Timed]:
    runs: dict[str, list[Timed]] = {}
    began: dict[str, int] = {}
    for line in lines:
        own = runs.setdefault(line.raw.run_id, [])
        due_s = own[-1].due_s if own else 0.0
        if line.raw.at is not None:
            first = began.setdefault(line.raw.run_id, line.raw.at)
            due_s = max(due_s, (line.raw.at - first) / 1000 / factor)
        own.append(Timed(due_s, line))
    if runs and not began:
        raise InvalidSettings("no event has a time (`at`), so there is no recorded speed: use --speed max or a number")
    yield from heapq.merge(*runs.values(), key=lambda event: event.due_s)
