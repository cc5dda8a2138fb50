"""The engine over records of the turns topic, as the worker steps them: what is refused there is refused here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from streamproc.core.decision import Decision
from streamproc.core.engine import Engine
from streamproc.core.run_state import RunState, dump, load
from streamproc.errors import InvalidEvent
from streamproc.fingerprint import read_event
from streamproc.fleet.signing import CommandSigner
from streamproc.kafka.reading import Record
from streamproc.model.wire import Event, OperatorEvent, Turn

AT_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, past which no time can be written down
HOT_MAX: Final = 20_000  # decoded states, about 10 KB each; the others are kept as at most 4 KiB of bytes


class States:
    """The states of the runs of one partition, most of them encoded where there are many."""

    def __init__(self, hot_max: int = HOT_MAX) -> None:
        self._hot: dict[bytes, RunState] = {}
        self._cold: dict[bytes, bytes] = {}
        self._hot_max = hot_max

    def get(self, key: bytes) -> RunState:
        """The state of a run; a new one where it is not known."""
        state = self._hot.get(key)
        if state is None:
            stored = self._cold.pop(key, None)
            state = self._hot[key] = RunState() if stored is None else load(stored)
            if len(self._hot) > self._hot_max:
                for oldest in list(islice(self._hot, self._hot_max // 2)):
                    self._cold[oldest] = dump(self._hot.pop(oldest))
        return state


class LogReplay:
    """Takes records of one topic, partition after partition. `only` names the one run that is of interest; where an
    `authority` is given, it says which orders count, as it does in the worker."""

    def __init__(
        self, engine: Engine, *, event_bytes_max: int, only: str | None = None, authority: CommandSigner | None = None
    ) -> None:
        self.turns: dict[str, int] = {}
        """Turns of each run."""
        self.refused = 0
        """Records that the worker puts into the dead-letter topic."""
        self._engine = engine
        self._event_bytes_max = event_bytes_max
        self._authority = authority
        self._only = None if only is None else only.encode()
        self._partition = -1
        self._states = States()

    def decide(self, records: Iterable[Record]) -> Iterator[Decision]:
        """The decisions on these records, each with its place in the log."""
        for record in records:
            if self._only is not None and record.key != self._only:
                continue
            if record.partition != self._partition:
                self._partition, self._states = record.partition, States()
            event = self._read(record)
            if event is None or record.key is None:
                self.refused += 1
                continue
            if type(event) is Turn:
                self.turns[event.run_id] = self.turns.get(event.run_id, 0) + 1
            at_ms = record.timestamp if 0 <= record.timestamp <= AT_MS_MAX else None
            for decision in self._engine.step(self._states.get(record.key), event, at_ms):
                if decision.trigger is not None:
                    decision.trigger.topic = record.topic
                    decision.trigger.partition = record.partition
                    decision.trigger.offset = record.offset
                yield decision

    def _read(self, record: Record) -> Event | None:
        value = record.value
        if value is None or len(value) > self._event_bytes_max:
            return None
        try:
            event = read_event(value)
            if isinstance(event, OperatorEvent) and self._authority is not None:
                self._authority.check_event(event, record.timestamp)
            return event if event.run_id.encode() == record.key else None
        except (InvalidEvent, ValueError, RecursionError):  # a parser's own limits: surrogates, nesting
            return None
