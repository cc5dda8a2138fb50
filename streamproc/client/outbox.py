"""What waits to be sent: a bounded buffer with one lane a partition. Pure: no I/O, no clock, no tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

UNKNOWN_LANE: Final = 0  # until the partitions are known, everything waits in one lane


class Item(NamedTuple):
    """An encoded event. `number` is its place in the order of publishing; `lasting` ones are dropped last."""

    number: int
    key: bytes
    value: bytes
    at_ms: int | None
    lasting: bool

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value)


class PartitionQueue:
    """What waits for one partition, in order: turns, and the few events that last (started, finished, stop…)."""

    __slots__ = ("lasting", "sending", "turns")

    def __init__(self) -> None:
        self.turns: deque[Item] = deque()
        self.lasting: deque[Item] = deque()
        self.sending: list[Item] = []

    def __bool__(self) -> bool:
        return bool(self.turns or self.lasting)

    def add(self, item: Item) -> None:
        """Put an item at the end."""
        (self.lasting if item.lasting else self.turns).append(item)

    def next_queue(self) -> deque[Item]:
        """The queue whose head comes first. Only for a lane where something waits."""
        if not self.lasting:
            return self.turns
        if not self.turns:
            return self.lasting
        return self.turns if self.turns[0].number < self.lasting[0].number else self.lasting

    def return_sending(self) -> None:
        """What was being sent waits again, before everything else."""
        for item in reversed(self.sending):
            (self.lasting if item.lasting else self.turns).appendleft(item)
        self.sending = []


class Outbox:
    """At most `events_max` events and `bytes_max` bytes, those being sent among them.

    When it is full the **oldest turn** goes. A breaker decides on what a run does now: after an outage the last
    turns of a loop still halt it, and the first ones are the likeliest to belong to runs that ended meanwhile.
    `run.started` carries limits, `operator.stop` an order: events that are no turns go only when no turn is left.
    """

    def __init__(self, events_max: int, bytes_max: int) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._lane_of: Callable[[bytes], int] = lambda _: UNKNOWN_LANE
        self._next = 0
        self.lanes = [PartitionQueue()]
        self.events = 0
        self.bytes = 0

    def has_room(self, size: int, before_it: int = 0) -> bool:
        """Whether an event of `size` bytes fits without dropping another, with `before_it` events still to come."""
        return self.events + before_it < self._events_max and self.bytes + size <= self._bytes_max

    def add(self, key: bytes, value: bytes, at_ms: int | None, *, lasting: bool) -> tuple[int, int]:
        """Take an event in. Returns its lane, and how many events were dropped for it (perhaps itself)."""
        item = Item(self._next, key, value, at_ms, lasting)
        self._next += 1
        lane = self._lane_of(key)
        self.lanes[lane].add(item)
        self.events += 1
        self.bytes += item.size
        dropped = 0
        while (self.events > self._events_max or self.bytes > self._bytes_max) and self._drop_oldest():
            dropped += 1
        return lane, dropped

    def spread(self, count: int, lane_of: Callable[[bytes], int]) -> None:
        """Use `count` lanes from now on; what waits moves to its lane, in the order of publishing."""
        for lane in self.lanes:
            lane.return_sending()
        waiting = sorted(item for lane in self.lanes for queue in (lane.turns, lane.lasting) for item in queue)
        self._lane_of = lane_of
        self.lanes = [PartitionQueue() for _ in range(count)]
        for item in waiting:
            self.lanes[lane_of(item.key)].add(item)

    def take(self, lane: PartitionQueue, bytes_max: int) -> list[Item]:
        """Start sending the next items of a lane: at least one, at most `bytes_max` bytes beyond it."""
        size = sum(item.size for item in lane.sending)
        while lane:
            queue = lane.next_queue()
            size += queue[0].size
            if lane.sending and size > bytes_max:
                break
            lane.sending.append(queue.popleft())
        return lane.sending

    def settle(self, lane: PartitionQueue, count: int) -> None:
        """The first `count` events of those that a lane was sending have left."""
        self._forget(lane.sending[:count])
        del lane.sending[:count]

    def oldest(self) -> int:
        """The number of the oldest event that is still here; the next number where there is none."""
        heads = [queue[0].number for lane in self.lanes for queue in (lane.sending, lane.turns, lane.lasting) if queue]
        return min(heads, default=self._next)

    @property
    def newest(self) -> int:
        """The number that the next event gets."""
        return self._next

    def _drop_oldest(self) -> bool:
        queue = self._oldest_of([lane.turns for lane in self.lanes]) or self._oldest_of(
            [lane.lasting for lane in self.lanes]
        )
        if queue is None:
            return False
        self._forget([queue.popleft()])
        return True

    @staticmethod
    def _oldest_of(queues: Iterable[deque[Item]]) -> deque[Item] | None:
        return min((queue for queue in queues if queue), key=lambda queue: queue[0].number, default=None)

    def _forget(self, items: Iterable[Item]) -> None:
        for item in items:
            self.events -= 1
            self.bytes -= item.size
