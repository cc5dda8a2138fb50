"""What follows from the records of a slice, which are stepped run by run, in the order of the records."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from streamproc.kafka.reading import log_time

if TYPE_CHECKING:
    from streamproc.core.charges import Charge
    from streamproc.core.provider_calls import CallCollector
    from streamproc.model.wire import Event
    from streamproc.worker.publishing import OutgoingRecord


class SliceEffects:
    """What follows from the records of a slice, in their order."""

    def __init__(self, calls: CallCollector) -> None:
        self._calls = calls
        self.records = 0
        self.outgoing: list[OutgoingRecord] = []
        self.charges: list[Charge] = []
        self.changed: dict[bytes, Event] = {}  # runs whose status is published, once, after this slice
        self.again: dict[bytes, Event] = {}  # those whose last record was applied before
        self.stopped: set[bytes] = set()  # runs for which this slice already has a stop event
        # Of the current piece, by place.
        self.charged: list[tuple[int, list[Charge]]] = []
        self.called: list[tuple[int, Any, Event]] = []  # records whose events name a model or a provider
        self.changes: list[tuple[int, bytes, Event]] = []
        self.repeated: list[tuple[int, bytes, Event]] = []
        self._outgoing: list[tuple[int, list[OutgoingRecord]]] = []

    def at(self, place: int) -> list[OutgoingRecord]:
        """Return the list for what is to be published because of the record at a place."""
        outgoing: list[OutgoingRecord] = []
        self._outgoing.append((place, outgoing))
        return outgoing

    def end_piece(self, records: int) -> None:
        """Put what the piece had to say into the order of its records."""
        self.records += records
        by_place: tuple[list[Any], ...] = (self._outgoing, self.charged, self.called, self.changes, self.repeated)
        for found in by_place:
            found.sort(key=itemgetter(0))
        for _, outgoing in self._outgoing:
            self.outgoing += outgoing
        for _, charges in self.charged:
            self.charges += charges
        for _, record, event in self.called:
            self._calls.add(event, log_time(record), record.offset)
        self.changed.update((key, event) for _, key, event in self.changes)
        self.again.update((key, event) for _, key, event in self.repeated)
        for found in by_place:
            found.clear()
