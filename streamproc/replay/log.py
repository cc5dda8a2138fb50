"""Read the records of the turns topic as the worker does, and run the engine over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from streamproc.core.decision import Decision, set_place
from streamproc.core.engine import Engine
from streamproc.core.kept_runs import KeptRuns
from streamproc.errors import InvalidEvent
from streamproc.fingerprint import read_event
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import CHECKED_TYPES, RecordSigner, check_log_event, record_signer
from streamproc.fleet.signing import CommandSigner, command_signer
from streamproc.kafka.reading import Record, log_time
from streamproc.model.wire import ASIDE, Event, Feedback, Turn
from streamproc.settings import Settings


class LogEvents:
    """Turns records into events, and rejects those that the worker rejects.

    `authority` checks operator commands and `record_signer` the events that workers add, as in the worker; without an
    authority, all are accepted.
    """

    def __init__(
        self,
        *,
        event_bytes_max: int,
        authority: CommandSigner | None = None,
        record_signer: RecordSigner | None = None,
    ) -> None:
        self._event_bytes_max = event_bytes_max
        self._authority = authority
        self._record_signer = record_signer or RecordSigner(Keyring(), "", required=False)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return one that checks as a worker with these settings does."""
        return cls(
            event_bytes_max=settings.event_bytes_max,
            authority=command_signer(settings),
            record_signer=record_signer(settings),
        )

    def read(self, record: Record) -> Event | None:
        """Return the event of a record; None for a record that the worker puts into the dead-letter topic."""
        value = record.value
        if value is None or record.key is None or len(value) > self._event_bytes_max:
            return None
        try:
            event = read_event(value)
            if type(event) in CHECKED_TYPES and self._authority is not None:
                check_log_event(event, record, self._authority, self._record_signer)
            return event if event.run_id.encode() == record.key else None
        except (InvalidEvent, ValueError, RecursionError):  # limits of the parser: surrogates, nesting
            return None


class LogReplay:
    """Runs the records of one topic through the engine, partition after partition.

    `only` restricts it to one run; for `authority` and `record_signer` see `LogEvents`. `places` are the offsets by
    partition of which `turn_at` is to be known.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        event_bytes_max: int,
        only: str | None = None,
        authority: CommandSigner | None = None,
        record_signer: RecordSigner | None = None,
        places: Mapping[int, set[int]] | None = None,
    ) -> None:
        self.turns: dict[str, int] = {}
        """Number of turns of each run."""
        self.refused = 0
        """Number of records that the worker puts into the dead-letter topic."""
        self.feedback: list[Feedback] = []
        """What people said of halts, oldest first; no part of a run."""
        self.turn_at: dict[tuple[int, int], int] = {}
        """For a partition and an offset of `places`, the index of the last turn of its run in this log."""
        self._engine = engine
        self._events = LogEvents(event_bytes_max=event_bytes_max, authority=authority, record_signer=record_signer)
        self._only = None if only is None else only.encode("utf-8", "surrogateescape")
        self._places = places or {}
        self._here: set[int] = set()
        self._partition = -1
        self._runs: KeptRuns[bytes] = KeptRuns(engine)

    def decide(self, records: Iterable[Record]) -> Iterator[Decision]:
        """Return the decisions on these records, each with its topic, partition and offset."""
        read = self._events.read
        for record in records:
            key = record.key
            if self._only is not None and key != self._only:
                continue
            if record.partition != self._partition:
                self._partition, self._runs = record.partition, KeptRuns(self._engine)
                self._here = self._places.get(record.partition, set())
            event = read(record)
            if event is None or key is None:
                self.refused += 1
                continue
            if type(event) in ASIDE:
                if type(event) is Feedback:
                    self.feedback.append(event)
                continue
            outcome = self._runs.step(key, event, log_time(record))
            if record.offset in self._here and (run := self._runs.read(key)) is not None:
                self.turn_at[record.partition, record.offset] = max(0, run.turns - 1)
            if outcome.refused is not None:
                self.refused += 1
            elif type(event) is Turn:
                self.turns[event.run_id] = self.turns.get(event.run_id, 0) + 1
            for decision in outcome.decisions:
                set_place(decision, record.topic, record.partition, record.offset)
                yield decision
