"""How far a topic is done, when what came of its records is done in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Place = TypeVar("Place")


class Commits(Generic[Place]):
    """For each partition: the offset before which everything is settled."""

    def __init__(self) -> None:
        self._open: dict[Place, deque[list[int]]] = {}
        self._ready: dict[Place, int] = {}

    def begin(self, place: Place, offset: int, parts: int) -> Callable[[], None]:
        """A record that is done once `parts` things are settled; what to call for each of them. In order of offsets."""
        entry = [offset, parts]
        records = self._open.setdefault(place, deque())
        if records and records[-1][1] <= 0:
            records.pop()  # done behind one that is not: the next one speaks for both, and the queue stays short
        records.append(entry)

        def settled() -> None:
            entry[1] -= 1
            self._advance(place, records)

        if not parts:
            self._advance(place, records)
        return settled

    def ready(self) -> dict[Place, int]:
        """Where to go on from, for each partition that has moved since this was asked the last time."""
        moved, self._ready = self._ready, {}
        return moved

    def keep(self, places: set[Place]) -> None:
        """Forget all other partitions: somebody else has them now."""
        self._open = {place: records for place, records in self._open.items() if place in places}
        self._ready = {place: offset for place, offset in self._ready.items() if place in places}

    @property
    def unsettled(self) -> int:
        """Records that are not done."""
        return sum(map(len, self._open.values()))

    def _advance(self, place: Place, records: deque[list[int]]) -> None:
        if self._open.get(place) is not records:
            return
        while records and records[0][1] <= 0:
            self._ready[place] = records.popleft()[0] + 1
