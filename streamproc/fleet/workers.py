"""Which workers live, and which partitions they watch, by the heartbeats on the workers topic. Pure: no clock, no I/O.

Silence is measured by the reader's monotonic clock, and only while the reader is in contact with the broker: a worker
is gone if nothing came from it although everything was read. A partition is watched for as long after a heartbeat of a
worker that decided on it, so a rebalance is no alarm. A reader that has heard of no worker knows nothing: `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streamproc.errors import InvalidEvent, Problem
from streamproc.kafka.reading import append_time_ms
from streamproc.model.heartbeat import REMEDY, Heartbeat, read_heartbeat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.fleet.record_signing import RecordSigner, SignedRecord
    from streamproc.model.provider_state import ProviderState

ROLE: Final = "workers"
"""The short name of the topic, also in signatures."""

HEARTBEAT_EVERY_S: Final = 2.0
# Three heartbeats are missing, and the fourth is late. It also bounds how late one may reach the broker: a recording of
# one that is sent again counts no longer than the worker itself would.
GONE_AFTER_S: Final = 8.0
DISCONNECTED_AFTER_S: Final = 5.0  # without an answer of the broker: readers look at least every 2 s
# After an outage, workers rejoin their group: a session, of ten seconds by default, may have to end first.
REJOIN_S: Final = 12.0
FORGET_AFTER_MS: Final = 86_400_000  # a worker that was silent for a day is removed from the topic by another one
WORKERS_MAX: Final = 1_000  # rows; past it, the worker that was silent longest is left out
CLAIMS_MAX: Final = 50_000  # partitions in all rows: 3 MB

WatchName = Literal["watching", "unwatched", "disconnected", "unknown"]
RowState = Literal["deciding", "restoring", "stopped", "silent"]


class WatchState(NamedTuple):
    """Whether workers decide on what agents do.

    ``watching``; ``unwatched`` since `since_ms` (epoch ms by the broker's clock, 0: not known), when a worker decided
    last; ``disconnected``: this reader has not reached the broker for `for_s`; ``unknown``: no worker was heard yet.
    """

    name: WatchName
    since_ms: int = 0
    for_s: float = 0.0


class WorkerRow(NamedTuple):
    """A worker: its last heartbeat, its state now, and for how long it was silent (s; None: not heard by this reader).

    `at_ms` is the broker's time of the heartbeat.
    """

    heartbeat: Heartbeat
    state: RowState
    at_ms: int
    silent_s: float | None


class UnwatchedPartition(NamedTuple):
    """A partition on which no worker decides, and when one did last (epoch ms; 0: not known)."""

    partition: int
    since_ms: int


class Lag(NamedTuple):
    """A partition whose worker is behind: turns that wait, and the age of the oldest."""

    partition: int
    worker: str
    records: int
    delay_ms: int


class Waiting(NamedTuple):
    """Turns on which no worker has decided yet, in how many partitions, and how many partitions there are."""

    turns: int
    partitions: int
    of: int


@dataclass(slots=True)
class _Row:
    heartbeat: Heartbeat
    at_ms: int
    heard_s: float | None  # None: it was on the topic when this reader came


@dataclass(slots=True)
class _Claim:
    """The last word about a partition."""

    position: int
    deciding_ms: int = 0  # when a worker decided on it last
    heard_s: float | None = None  # when this reader heard of that


class Workers:
    """The workers that a reader of the topic knows. Any thread may read it; only one thread may change it."""

    def __init__(self, signer: RecordSigner, shadow: str = "") -> None:
        self.refused = 0
        """Records of the topic that were no heartbeat, or of which a worker is not the author."""
        self.refusal: Problem | None = None
        """Why the last of them was refused."""
        self.partitions = 0
        """How many partitions the turns topic has, by the newest heartbeat; 0: not known."""
        self._signer = signer
        self._shadow = shadow
        self._rows: dict[str, _Row] = {}
        self._claims: dict[int, _Claim] = {}
        self._claimed = 0  # partitions in all rows
        self._contact_s: float | None = None
        self._began_s = 0.0

    # What the reader says.

    def apply(self, record: SignedRecord, now_s: float) -> Heartbeat | None:
        """Apply a record of the topic, read at this monotonic time; return its heartbeat, None if it does not count.

        A record that is refused is counted, and changes nothing.
        """
        try:
            return self._apply(record, now_s)
        except InvalidEvent as bad:
            self.refused += 1
            self.refusal = bad.problems[0]
            return None

    def contact(self, now_s: float) -> None:
        """Say that at this time the broker answered, and everything on the topic had been read.

        After a time without contact, silence counts again some seconds after its end: workers could not reach the
        broker either, and rejoin their group.
        """
        last, self._contact_s = self._contact_s, now_s
        if last is None:
            self._began_s = now_s
        elif now_s - last > DISCONNECTED_AFTER_S:
            if last - self._began_s <= GONE_AFTER_S:
                self._began_s = now_s
            known: list[_Row | _Claim] = [*self._rows.values(), *self._claims.values()]
            for one in known:
                if one.heard_s is not None and last - one.heard_s <= GONE_AFTER_S:
                    one.heard_s = now_s + REJOIN_S

    # What follows.

    def state(self, now_s: float, partition: int | None = None) -> WatchState:
        """Return whether workers decide now: on any partition, or on this one of the turns topic."""
        if self._contact_s is None:
            return WatchState("unknown")
        if now_s - self._contact_s > DISCONNECTED_AFTER_S:
            return WatchState("disconnected", for_s=now_s - self._contact_s)
        if not self._claims:
            return WatchState("unknown")
        rows = list(self._rows.values())
        one = self._claims.get(partition) if partition is not None else None
        claims = list(self._claims.values()) if partition is None else [one] if one is not None else []
        if any(map(self._lives, rows)) and any(self._is_recent(claim.heard_s) for claim in claims):
            return WatchState("watching")
        if self._is_settling and any(row.heartbeat.state != "stopped" for row in rows):
            return WatchState("unknown")
        return WatchState("unwatched", max((claim.deciding_ms for claim in claims), default=0))

    @property
    def is_settled(self) -> bool:
        """Whether all there is to know is known: every partition is watched, no worker can be alive, or this reader
        has listened for long enough."""
        if self._contact_s is None:
            return False
        if not self._is_settling or all(row.heartbeat.state == "stopped" for row in list(self._rows.values())):
            return True
        return bool(self.partitions) and all(
            claim is not None and self._is_recent(claim.heard_s)
            for claim in map(self._claims.get, range(self.partitions))
        )

    def settle(self) -> None:
        """Say that this reader has listened for long enough: what it has not heard by now is gone."""
        self._began_s = float("-inf")

    def unwatched(self) -> list[UnwatchedPartition]:
        """Return the partitions on which no worker decides; none before this reader has listened for long enough."""
        if not self._claims or self._is_settling:
            return []
        none_lives = not any(map(self._lives, list(self._rows.values())))
        found = []
        for number in range(self.partitions):
            claim = self._claims.get(number)
            if claim is None or none_lives or not self._is_recent(claim.heard_s):
                found.append(UnwatchedPartition(number, claim.deciding_ms if claim is not None else 0))
        return found

    def rows(self) -> list[WorkerRow]:
        """Return the workers by name, as they were at the last contact with the broker."""
        return [
            WorkerRow(row.heartbeat, self._row_state(row), row.at_ms, self._silence(row.heard_s))
            for _, row in sorted(self._rows.items())
        ]

    def living(self) -> list[Heartbeat]:
        """Return the last heartbeats of the workers that live, by name."""
        return [row.heartbeat for _, row in sorted(self._rows.items()) if self._lives(row)]

    def providers(self) -> list[ProviderState]:
        """Return the breakers of providers that hold calls back, by living workers' last heartbeats, by name."""
        newest: dict[str, ProviderState] = {}
        for heartbeat in self.living():
            for state in heartbeat.providers:
                known = newest.get(state.provider)
                if known is None or state.version > known.version:
                    newest[state.provider] = state
        return [newest[name] for name in sorted(newest)]

    def lagging(self, delay_ms: int) -> list[Lag]:
        """Return the partitions of living workers in which a turn waits for this long, the longest first."""
        found = [
            Lag(lag.partition, heartbeat.worker, lag.records, lag.delay_ms)
            for heartbeat in self.living()
            for lag in heartbeat.lagging
            if lag.delay_ms >= delay_ms
        ]
        return sorted(found, key=lambda lag: -lag.delay_ms)

    def positions(self) -> dict[int, int]:
        """Return the next offset to decide on of each partition that a worker has had."""
        return {number: claim.position for number, claim in list(self._claims.items())}

    def waiting(self, ends: Mapping[int, int]) -> Waiting:
        """Return how many turns wait, by the ends of the partitions of the turns topic."""
        positions = self.positions()
        left = [max(0, end - positions[number]) for number, end in ends.items() if number in positions]
        return Waiting(sum(left), sum(map(bool, left)), len(ends))

    # Inside.

    def _apply(self, record: SignedRecord, now_s: float) -> Heartbeat | None:
        at_ms = append_time_ms(record)
        if self._signer.required:
            self._signer.check(ROLE, record)
        if record.value is None:
            self._forget(record, at_ms)
            return None
        heartbeat = read_heartbeat(record.value, record.key or b"")
        if heartbeat.shadow != self._shadow:
            what = f"of {f'the shadow {heartbeat.shadow}' if heartbeat.shadow else 'no shadow'}"
            raise InvalidEvent((Problem("shadow", what, REMEDY),))
        if at_ms is not None and abs(at_ms - heartbeat.at) > GONE_AFTER_S * 1000:
            off_s = abs(at_ms - heartbeat.at) / 1000
            what = f"is {off_s:.0f} s off the broker's time; at most {GONE_AFTER_S:g} s are accepted"
            raise InvalidEvent((Problem("at", what, "a recorded heartbeat was sent again, or it was held up"),))
        known = self._rows.get(heartbeat.worker)
        if known is not None and heartbeat.at <= known.heartbeat.at:
            return None
        self._add(heartbeat, heartbeat.at if at_ms is None else at_ms, None if self._contact_s is None else now_s)
        return heartbeat

    def _forget(self, record: SignedRecord, at_ms: int | None) -> None:
        row = self._rows.get((record.key or b"").decode("utf-8", "replace"))
        if row is not None and at_ms is not None and at_ms - row.at_ms > FORGET_AFTER_MS:
            self._remove(row)

    def _add(self, heartbeat: Heartbeat, at_ms: int, heard_s: float | None) -> None:
        known = self._rows.get(heartbeat.worker)
        if known is not None:
            self._remove(known)
        self._rows[heartbeat.worker] = _Row(heartbeat, at_ms, heard_s)
        self._claimed += len(heartbeat.partitions)
        while len(self._rows) > 1 and (len(self._rows) > WORKERS_MAX or self._claimed > CLAIMS_MAX):
            others = (row for name, row in self._rows.items() if name != heartbeat.worker)
            self._remove(min(others, key=lambda row: row.at_ms))
        if heartbeat.of:
            self.partitions = heartbeat.of
        deciding_ms = min(heartbeat.deciding_at, heartbeat.at)
        for number, position in zip(heartbeat.partitions, heartbeat.positions, strict=True):
            claim = self._claims.setdefault(number, _Claim(position))
            claim.deciding_ms = max(claim.deciding_ms, deciding_ms)
            if heartbeat.state != "restoring":
                claim.position = position
            if heartbeat.state == "deciding" and heard_s is not None:
                claim.heard_s = heard_s

    def _remove(self, row: _Row) -> None:
        del self._rows[row.heartbeat.worker]
        self._claimed -= len(row.heartbeat.partitions)

    @property
    def _is_settling(self) -> bool:
        """Whether this reader has not listened for long enough to hear every worker that lives."""
        return self._contact_s is None or self._contact_s - self._began_s <= GONE_AFTER_S

    def _lives(self, row: _Row) -> bool:
        return row.heartbeat.state != "stopped" and self._is_recent(row.heard_s)

    def _is_recent(self, heard_s: float | None) -> bool:
        silence_s = self._silence(heard_s)
        return silence_s is not None and silence_s <= GONE_AFTER_S

    def _silence(self, heard_s: float | None) -> float | None:
        return None if heard_s is None or self._contact_s is None else max(0.0, self._contact_s - heard_s)

    def _row_state(self, row: _Row) -> RowState:
        if row.heartbeat.state == "stopped" or self._lives(row):
            return row.heartbeat.state
        return "silent"
