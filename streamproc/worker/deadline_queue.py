"""The deadlines of a partition's runs: a heap with one entry a run, or a few."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

# Entries of deadlines that were removed, beyond twice the number of deadlines: a run whose turns begin and end leaves
# one at each turn, and it would stay until its time has come.
STALE_MAX: Final = 1_000


class DeadlineQueue:
    """The next deadline of each run that has one.

    Moving a deadline back costs nothing, which is the common case: most runs send an event before their deadline.
    """

    def __init__(self) -> None:
        self._due: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: bytes, due_ms: int) -> None:
        """Set the deadline of a run, in log time; 0 removes it."""
        if not due_ms:
            self._due.pop(key, None)
            return
        before = self._due.get(key)
        self._due[key] = due_ms
        if before is None or due_ms < before:
            heappush(self._heap, (due_ms, key))
            if len(self._heap) > STALE_MAX + 2 * len(self._due):
                self._heap = [(at_ms, key) for key, at_ms in self._due.items()]
                heapify(self._heap)

    def again(self, key: bytes, due_ms: int) -> None:
        """Set the next deadline, in log time, of a run that `take` returned."""
        self.set(key, due_ms)

    def take(self, now_ms: int, most: int) -> list[bytes]:
        """Remove and return runs whose deadline has passed, earliest first."""
        found: list[bytes] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < most:
            at_ms, key = heappop(self._heap)
            due_ms = self._due.get(key)
            if due_ms is not None and due_ms > at_ms:
                heappush(self._heap, (due_ms, key))
            elif due_ms == at_ms:
                del self._due[key]
                found.append(key)
        return found
