"""The part of a log that a command is about: between two times or offsets, of one run, workflow or user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamproc.core.decision import Decision
from streamproc.kafka.reading import Extent, Record
from streamproc.replay.diff import PublishedDecision
from streamproc.replay.spool import SpooledRun


class Selection(NamedTuple):
    """Whose decisions count. None: everyone's."""

    run: str | None = None
    workflow: str | None = None
    user: str | None = None

    def holds(self, one: Decision | PublishedDecision | SpooledRun) -> bool:
        """Return whether a run is selected, or a decision is about a selected one."""
        return (
            (self.run is None or one.run_id == self.run)
            and (self.workflow is None or one.workflow == self.workflow)
            and (self.user is None or one.user == self.user)
        )


class LogWindow:
    """The offsets of each partition from the first record at or after `from_ms` to the last one at or before `to_ms`,
    within `whole`.

    Bounds are log times in epoch ms; None means no bound. The window is complete only after the last record: a log
    with publishers' times need not be in time order.
    """

    def __init__(self, whole: Mapping[int, Extent], from_ms: int | None, to_ms: int | None) -> None:
        self._whole = dict(whole)
        self._bounds = from_ms, to_ms
        self.bounded = from_ms is not None or to_ms is not None
        self.extents: dict[int, Extent] = {} if self.bounded else self._whole

    def see(self, records: Iterable[Record]) -> None:
        """Update the window with records, in the order of their partition's log."""
        if not self.bounded:
            return
        from_ms, to_ms = self._bounds
        for record in records:
            whole = self._whole.get(record.partition)
            if whole is None or not whole.begin <= record.offset < whole.end:
                continue
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
