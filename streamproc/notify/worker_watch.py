"""When to notify people that workers do not decide, and that they do again. Pure: no clock, no I/O.

It goes by what is heard now, never by old records: it waits until it knows. Once for the whole fleet, at once; once for
partitions that have had no worker for longer than a takeover takes; once when all are watched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import xxhash

from streamproc.model.controls import ControlEvent, ControlEvidence, ControlTrigger
from streamproc.model.formats import time_of_day
from streamproc.model.log_time import rfc3339

if TYPE_CHECKING:
    from streamproc.fleet.watching import Watching

CODE: Final = "FLEET004"
TAKEOVER_S: Final = 30.0  # a dead worker's session lasts ten seconds by default; a rebalance and a recovery follow

Told = Literal["", "unwatched", "partitions"]


class WorkerWatch:
    """What people were told last about the workers."""

    def __init__(self) -> None:
        self._told: Told = ""
        self._partial_s: float | None = None  # since when some partitions have had no worker
        self._subject = ""  # of the notifications that belong together

    def step(self, found: Watching, now_s: float) -> str:
        """Return the kind of event to tell people of at this monotonic time; empty if there is none."""
        if found.state.name == "unwatched":
            self._partial_s = None
            return self._tell("unwatched", "fleet_unwatched")
        if found.state.name != "watching":
            return ""  # nothing is known
        if not found.unwatched:
            self._partial_s = None
            return self._tell("", "fleet_watched")
        if self._partial_s is None:
            self._partial_s = now_s
        if now_s - self._partial_s >= TAKEOVER_S:
            return self._tell("partitions", "fleet_partition_unwatched")
        return ""

    def _tell(self, what: Told, kind: str) -> str:
        if self._told == what:
            return ""
        self._told = what
        return kind

    def event(self, kind: str, found: Watching, now_ms: int) -> ControlEvent:
        """Return what people are told, as an event like those of workers; it goes to no topic."""
        since_ms = found.state.since_ms or min((one.since_ms for one in found.unwatched), default=0)
        if kind == "fleet_watched":
            message = "Workers decide on all partitions again"
        else:
            self._subject = f"unwatched since {since_ms}"
            sentence = found.sentence(lambda ms: f"{time_of_day(ms)} UTC", now_ms)
            message = f"{sentence[:1].upper()}{sentence[1:]}"
        return ControlEvent(
            id=xxhash.xxh3_128_hexdigest(f"{kind}\0{self._subject}".encode()),
            type="fleet.state",
            run_id="*",
            code=CODE,
            severity="info" if kind == "fleet_watched" else "warn",
            message=f"{message}.",
            evidence=ControlEvidence(kind=kind),
            trigger=ControlTrigger(event_id=f"{kind} {self._subject}"),
            at=rfc3339(now_ms),
        )
