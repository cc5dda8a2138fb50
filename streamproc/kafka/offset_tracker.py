"""Committable offsets of a topic whose records settle in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Place = TypeVar("Place")


class OffsetTracker(Generic[Place]):
    """Tracks, for each partition, the offset before which everything is settled."""

    def __init__(self) -> None:
        self._open: dict[Place, deque[list[int]]] = {}
        self._ready: dict[Place, int] = {}

    def begin(self, place: Place, offset: int, parts: int) -> Callable[[], None]:
        """Track a record that is done once `parts` things settle; return what to call for each of them.

        Records of a partition must be passed in the order of their offsets.
        """
        entry = [offset, parts]
        records = self._open.setdefault(place, deque())
        if records and records[-1][1] <= 0:
            records.pop()  # done, behind an open one: the next record covers it, and the queue stays short
        records.append(entry)

        def settled() -> None:
            entry[1] -= 1
            self._advance(place, records)

        if not parts:
            self._advance(place, records)
        return settled

    def ready(self) -> dict[Place, int]:
        """Return the offset to commit for each partition that has advanced since what was `committed`."""
        return dict(self._ready)

    def committed(self, offsets: dict[Place, int]) -> None:
        """Note that these offsets of `ready` were committed; a partition that has advanced since stays ready."""
        self._ready = {place: offset for place, offset in self._ready.items() if offsets.get(place) != offset}

    def keep(self, places: set[Place]) -> None:
        """Drop all other partitions: they are assigned to another notifier."""
        self._open = {place: records for place, records in self._open.items() if place in places}
        self._ready = {place: offset for place, offset in self._ready.items() if place in places}

    @property
    def unsettled(self) -> int:
        """The number of records that are not done."""
        return sum(map(len, self._open.values()))

    def _advance(self, place: Place, records: deque[list[int]]) -> None:
        if self._open.get(place) is not records:
            return
        while records and records[0][1] <= 0:
            self._ready[place] = records.popleft()[0] + 1
