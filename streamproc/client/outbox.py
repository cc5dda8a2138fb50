"""The publisher's bounded buffer, with one queue per partition. Pure: no I/O, no clock, no tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from streamproc.client.encoding import Encoded

UNASSIGNED: Final = 0  # until the partitions are known, every event waits in one queue


class PartitionQueue:
    """The events that wait for one partition, in order: turns, and the few lasting events (started, finished, stop)."""

    __slots__ = ("lasting", "sending", "turns")

    def __init__(self) -> None:
        self.turns: deque[Encoded] = deque()
        self.lasting: deque[Encoded] = deque()
        self.sending: list[Encoded] = []

    def __bool__(self) -> bool:
        return bool(self.turns or self.lasting)

    def add(self, item: Encoded) -> None:
        """Append an item."""
        (self.lasting if item.lasting else self.turns).append(item)

    def next_deque(self) -> deque[Encoded]:
        """Return the deque whose head is older. Call it only if an item waits."""
        if not self.lasting:
            return self.turns
        if not self.turns:
            return self.lasting
        return self.turns if self.turns[0].number < self.lasting[0].number else self.lasting

    def return_sending(self) -> None:
        """Put the items that were being sent back, before all others."""
        for item in reversed(self.sending):
            (self.lasting if item.lasting else self.turns).appendleft(item)
        self.sending = []


class Outbox:
    """Holds at most `events_max` events and `bytes_max` bytes, including those being sent.

    When it is full, the **oldest turn** is dropped. The breaker decides by current behaviour: after an outage the last
    turns of a loop still halt it, while the first ones most likely belong to runs that have ended. `run.started`
    carries limits and `operator.stop` a command, so such events are dropped only when no turn is left.
    """

    def __init__(self, events_max: int, bytes_max: int) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._partition_of: Callable[[bytes], int] = lambda _: UNASSIGNED
        self._next = 0
        self.queues = [PartitionQueue()]
        self.events = 0
        self.bytes = 0

    def fits(self, size: int, ahead: int = 0) -> bool:
        """Return whether an event of `size` bytes fits without dropping another, after `ahead` more events."""
        return self.events + ahead < self._events_max and self.bytes + size <= self._bytes_max

    def add(self, event: Encoded) -> tuple[int, int]:
        """Add an event. Returns its partition, and how many events were dropped for it (possibly itself)."""
        item = event._replace(number=self._next)
        self._next += 1
        partition = self._partition_of(item.key)
        self.queues[partition].add(item)
        self.events += 1
        self.bytes += item.size
        dropped = 0
        while (self.events > self._events_max or self.bytes > self._bytes_max) and self._drop_oldest():
            dropped += 1
        return partition, dropped

    def repartition(self, count: int, partition_of: Callable[[bytes], int]) -> None:
        """Use `count` queues from now on; waiting events move to their queue, in publishing order."""
        for queue in self.queues:
            queue.return_sending()
        waiting = [item for queue in self.queues for items in (queue.turns, queue.lasting) for item in items]
        waiting.sort(key=lambda item: item.number)
        self._partition_of = partition_of
        self.queues = [PartitionQueue() for _ in range(count)]
        for item in waiting:
            self.queues[partition_of(item.key)].add(item)

    def start_sending(self, queue: PartitionQueue, bytes_max: int) -> list[Encoded]:
        """Move the next items of a queue to `sending`: at least one, and no more than `bytes_max` bytes after it."""
        size = sum(item.size for item in queue.sending)
        while queue:
            items = queue.next_deque()
            size += items[0].size
            if queue.sending and size > bytes_max:
                break
            queue.sending.append(items.popleft())
        return queue.sending

    def remove_sent(self, queue: PartitionQueue, count: int) -> None:
        """Remove the first `count` of the events that a queue was sending."""
        self._subtract(queue.sending[:count])
        del queue.sending[:count]

    def oldest(self) -> int:
        """Return the number of the oldest buffered event; the next number if the outbox is empty."""
        heads = [
            items[0].number for queue in self.queues for items in (queue.sending, queue.turns, queue.lasting) if items
        ]
        return min(heads, default=self._next)

    @property
    def newest(self) -> int:
        """The number that the next event gets."""
        return self._next

    def _drop_oldest(self) -> bool:
        oldest = self._oldest_of([queue.turns for queue in self.queues]) or self._oldest_of(
            [queue.lasting for queue in self.queues]
        )
        if oldest is None:
            return False
        self._subtract([oldest.popleft()])
        return True

    @staticmethod
    def _oldest_of(deques: Iterable[deque[Encoded]]) -> deque[Encoded] | None:
        return min((items for items in deques if items), key=lambda items: items[0].number, default=None)

    def _subtract(self, items: Iterable[Encoded]) -> None:
        for item in items:
            self.events -= 1
            self.bytes -= item.size
