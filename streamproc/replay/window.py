"""The part of a log between two times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamproc.core.decision import Decision
from streamproc.kafka.reading import Extent, Record


class LogWindow:
    """The offsets of each partition from the first record at or after `from_ms` to the last one at or before `to_ms`.

    Bounds are log times in epoch ms; None means no bound. The window is complete only after the last record: a log
    with publishers' times need not be in time order.
    """

    def __init__(self, whole: Mapping[int, Extent], from_ms: int | None, to_ms: int | None) -> None:
        self._bounds = from_ms, to_ms
        self.bounded = from_ms is not None or to_ms is not None
        self.extents: dict[int, Extent] = {} if self.bounded else dict(whole)

    def see(self, records: Iterable[Record]) -> None:
        """Update the window with records, in the order of their partition's log."""
        if not self.bounded:
            return
        from_ms, to_ms = self._bounds
        for record in records:
            if (from_ms is None or record.timestamp >= from_ms) and (to_ms is None or record.timestamp <= to_ms):
                begin = self.extents.get(record.partition, Extent(record.offset, record.offset)).begin
                self.extents[record.partition] = Extent(begin, record.offset + 1)

    def holds(self, decision: Decision) -> bool:
        """Return whether the event that caused a decision is in the window."""
        trigger = decision.trigger
        if trigger is None or trigger.partition is None or trigger.offset is None:
            return not self.bounded
        extent = self.extents.get(trigger.partition)
        return extent is not None and extent.begin <= trigger.offset < extent.end
