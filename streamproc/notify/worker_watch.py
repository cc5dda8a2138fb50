"""When to notify people that workers do not decide, and that they do again. Pure: no clock, no I/O.

It goes by what is heard now, never by old records: it waits until it knows. Once for the whole fleet, at once; once for
partitions that have had no worker, and for a broker that has not answered, for longer than a takeover takes; once when
all are watched again.
"""

from __future__ import annotations

from typing import Final, Literal

import xxhash

from streamproc.fleet.watching import Watching
from streamproc.model.controls import ControlEvent, ControlEvidence, ControlTrigger
from streamproc.model.formats import time_of_day
from streamproc.model.log_time import rfc3339

CODE: Final = "FLEET004"
TAKEOVER_S: Final = 30.0  # a dead worker's session lasts ten seconds by default; a rebalance and a recovery follow

Told = Literal["", "unwatched", "partitions", "disconnected"]
KINDS: Final[dict[Told, str]] = {
    "": "fleet_watched", "unwatched": "fleet_unwatched", "partitions": "fleet_partition_unwatched",
    "disconnected": "fleet_disconnected",
}  # fmt: skip


class WorkerWatch:
    """What people were told last about the workers."""

    def __init__(self) -> None:
        self._told: Told = ""
        self._partial_s: float | None = None  # since when some partitions have had no worker
        self._subject = ""  # of the notifications that belong together

    def step(self, found: Watching, now_s: float) -> str:
        """Return the kind of event to tell people of at this monotonic time; empty if there is none."""
        what = self._what(found, now_s)
        if what is None or what == self._told:
            return ""
        self._told = what
        return KINDS[what]

    def _what(self, found: Watching, now_s: float) -> Told | None:
        """What people should have been told by now; None: what they were told last."""
        if found.state.name != "watching" or not found.unwatched:
            self._partial_s = None
        elif self._partial_s is None:
            self._partial_s = now_s
        if found.state.name == "unwatched":
            return "unwatched"
        if found.state.name == "disconnected":
            return "disconnected" if found.state.for_s >= TAKEOVER_S else None
        if found.state.name == "unknown":
            return None
        if self._partial_s is None:
            return ""
        return "partitions" if now_s - self._partial_s >= TAKEOVER_S else None

    def event(self, kind: str, found: Watching, now_ms: int) -> ControlEvent:
        """Return what people are told, as an event like those of workers; it goes to no topic."""
        since_ms = found.state.since_ms or min((one.since_ms for one in found.unwatched), default=0)
        if kind == "fleet_watched":
            message = "Workers decide on all partitions again"
        else:
            self._subject = f"unwatched since {since_ms or now_ms}"
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
