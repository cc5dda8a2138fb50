"""Whether the fleet is watched: one answer and one wording for page, terminal, `doctor`, `runs` and notifications."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streamproc.errors import plural
from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading
from streamproc.model.escaping import escape
from streamproc.model.formats import duration, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamproc.fleet.workers import Lag, UnwatchedPartition, Waiting, WatchState, WorkerRow, Workers
    from streamproc.model.provider_state import ProviderState

NAMED_MAX: Final = 5  # partitions that a sentence names


def watch_readings(found: Watching) -> Iterator[Reading]:
    """Yield whether workers decide, on how many partitions none does, and how many turns wait, if that is known."""
    for state in definitions.WATCH_STATES:
        yield Reading(definitions.WATCH_STATE, state == found.state.name, (state,))
    yield Reading(definitions.UNWATCHED_PARTITIONS, len(found.unwatched))
    counts = Counter(row.state for row in found.rows)
    for one in definitions.WORKER_STATES:
        yield Reading(definitions.WORKERS, counts[one], (one,))
    if found.waiting is not None:
        yield Reading(definitions.WAITING_TURNS, found.waiting.turns)


Level = Literal["ok", "unknown", "warn", "fail"]


class Watching(NamedTuple):
    """Whether the fleet is watched. `waiting` is None if the ends of the turns topic are not known."""

    state: WatchState
    unwatched: tuple[UnwatchedPartition, ...]
    lagging: tuple[Lag, ...]
    waiting: Waiting | None
    partitions: int
    rows: tuple[WorkerRow, ...]
    refused: str = ""
    """How many records of the topic were refused, and why the last one was; empty if none was."""
    providers: tuple[ProviderState, ...] = ()
    """The breakers of providers that hold calls back."""

    @property
    def level(self) -> Level:
        """How bad it is. ``fail``: what some agents do, no worker decides on, or this reader knows nothing about it."""
        if self.state.name in ("unwatched", "disconnected") or self.unwatched:
            return "fail"
        if self.state.name == "unknown":
            return "unknown"
        return "warn" if self.lagging or self.providers else "ok"

    def sentence(self, clock: Callable[[int], str], now_ms: int = 0) -> str:
        """Return what is wrong, in one sentence without a full stop; empty if nothing is.

        `clock` renders an epoch time in ms; `now_ms` is now.
        """
        if self.state.name == "disconnected":
            since = clock(now_ms - round(self.state.for_s * 1000))
            return f"Kafka has not answered since {since}: whether workers decide is not known"
        if self.state.name == "unwatched":
            return self._with_waiting(f"no worker has decided since {_time(self.state.since_ms, clock)}")
        if self.unwatched:
            return self._with_waiting(_unwatched(self.unwatched, self.partitions, clock))
        if self.state.name == "unknown":
            return "no worker has given a heartbeat yet"
        if self.lagging:
            return _lagging(self.lagging)
        return _providers(self.providers, clock) if self.providers else ""

    def _with_waiting(self, text: str) -> str:
        if self.waiting is None or not self.waiting.turns:
            return text
        turns = f"{grouped(self.waiting.turns)} turn{'' if self.waiting.turns == 1 else 's'}"
        verb = "waits" if self.waiting.turns == 1 else "wait"
        return f"{text}; {turns} {verb} in {self.waiting.partitions} of {plural(self.waiting.of, 'partition')}"


def watching_of(
    workers: Workers, now_s: float, *, ends: Mapping[int, int] | None = None, lag_warn_s: float
) -> Watching:
    """Return whether the fleet is watched at this monotonic time; `ends` are those of the turns topic."""
    return Watching(
        workers.state(now_s),
        tuple(workers.unwatched()),
        tuple(workers.lagging(round(lag_warn_s * 1000))),
        None if ends is None or not workers.positions() else workers.waiting(ends),
        workers.partitions,
        tuple(workers.rows()),
        _refused(workers),
        tuple(workers.providers()),
    )


def row_words(row: WorkerRow) -> str:
    """Return the state of a worker in words, such as ``deciding on 4 partitions``."""
    if row.state == "deciding":
        return f"deciding on {plural(len(row.heartbeat.partitions), 'partition')}"
    return {"restoring": "restoring states", "stopped": "stopped", "silent": "gone"}[row.state]


def _unwatched(found: tuple[UnwatchedPartition, ...], of: int, clock: Callable[[int], str]) -> str:
    since = min((one.since_ms for one in found if one.since_ms), default=0)
    what = "has never had a worker" if not since else f"has had no worker since {clock(since)}"
    if len(found) == 1:
        return f"partition {found[0].partition} {what}"
    named = ", ".join(str(one.partition) for one in found[:NAMED_MAX])
    more = ", …" if len(found) > NAMED_MAX else ""
    return f"{len(found)} of {of} partitions ({named}{more}) {what.replace('has', 'have', 1)}"


def _lagging(found: tuple[Lag, ...]) -> str:
    first = found[0]
    text = f"partition {first.partition} is {duration(first.delay_ms)} late (worker {escape(first.worker)})"
    return text if len(found) == 1 else f"{text}, and {plural(len(found) - 1, 'other partition')} over the limit"


def _providers(found: tuple[ProviderState, ...], clock: Callable[[int], str]) -> str:
    first = found[0]
    until = f"; probes go at {clock(first.until_ms)}" if first.state == "open" else ""
    text = f"{escape(first.provider)} is {first.state.replace('_', '-')}: {escape(first.reason)}{until}"
    return text if len(found) == 1 else f"{text}; and {plural(len(found) - 1, 'other provider')}"


def _time(ms: int, clock: Callable[[int], str]) -> str:
    return clock(ms) if ms else "a time that is not known"


def _refused(workers: Workers) -> str:
    if workers.refusal is None:
        return ""
    return f"{plural(workers.refused, 'heartbeat')} refused; the last: {workers.refusal}"
