"""A follower that is a member of a consumer group: a record is committed when everything before it is settled.

Delivery is at least once: what was not committed before a crash is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from streamproc.kafka.follow import POLL_MS, Follower
from streamproc.kafka.vendor import is_member

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokafka import AIOKafkaConsumer

    from streamproc.kafka.follow import Batches, Topic
    from streamproc.kafka.session import Backoff, Outage
    from streamproc.settings import Settings

Place = TypeVar("Place")

COMMIT_TIMEOUT_S: Final = 5.0  # at a stop; without a broker, the records are read again


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

    def _advance(self, place: Place, records: deque[list[int]]) -> None:
        if self._open.get(place) is not records:
            return
        while records and records[0][1] <= 0:
            self._ready[place] = records.popleft()[0] + 1


class GroupFollower(Follower):
    """Follows a topic in a group until `stop`; then `drain` settles what it can, that is committed, and `run` ends.

    `reset` says where a new group begins: "earliest" or "latest". `connected`: whether it is a member of the group.
    """

    close_timeout_s: ClassVar = 5.0  # it leaves its group

    def __init__(
        self,
        settings: Settings,
        topic: Topic,
        handle: Callable[[Batches], Awaitable[None]],
        outage: Outage,
        *,
        group: str,
        reset: str,
        drain: Callable[[], Awaitable[Any]],
        remedy: str = "",
        **options: Any,
    ) -> None:
        super().__init__(
            settings, [topic], handle, outage, remedy=remedy, group_id=group, auto_offset_reset=reset, **options
        )
        self.settling: OffsetTracker[TopicPartition] = OffsetTracker()
        """Begin each record here; it is committed when all before it are settled."""
        self._topic = topic.name
        self._drain = drain
        self._assigned: set[TopicPartition] = set()
        self._first_read: dict[TopicPartition, int] = {}

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def reads(self, at: TopicPartition) -> bool:
        """Return whether this member of the group has got this partition."""
        return at in self._assigned

    def stop(self) -> None:
        """Read no more, settle and commit what there is within a short time, and leave the group."""
        self._stop.set()

    async def _attach(self, consumer: AIOKafkaConsumer) -> None:
        self._assigned = set()
        consumer.subscribe([self._topic])

    async def _watch(self, _consumer: AIOKafkaConsumer) -> None:
        await asyncio.Event().wait()  # aiokafka finds new partitions, and the group shares them out

    async def _read(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        while not self._stop.is_set():
            await self._update_assignment(consumer, backoff)
            batches: Batches = await consumer.getmany(timeout_ms=POLL_MS)
            if batches:
                self._note_answer()
                for at, records in batches.items():
                    self._first_read.setdefault(at, records[0].offset)
                await self._handle(batches)
            await self._commit(consumer)
        await self._drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                await self._commit(consumer)

    async def _update_assignment(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        """Track the assigned partitions. Commit a position for one without any at once: otherwise a crash before the
        first commit would lose records."""
        self.connected = is_member(consumer)
        assigned = set(consumer.assignment())
        if assigned == self._assigned:
            return
        self.settling.keep(assigned)
        for at in assigned - self._assigned:
            if await consumer.committed(at) is None:
                first = self._first_read.get(at)  # records may have been read since `assignment`
                await consumer.commit({at: await consumer.position(at) if first is None else first})
        self._assigned = assigned
        if assigned:
            backoff.reset()
            self._outage.over()
            numbers = sorted(at.partition for at in assigned)
            self._outage.log.info("reading %s partitions=%s", self._topic, numbers)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        ready = self.settling.ready()
        if not ready:
            return
        try:
            await consumer.commit(ready)
        except (CommitFailedError, IllegalStateError) as error:
            # The group shares out its partitions: what stays here is committed in the next round, and the new owner of
            # a partition that moves reads these records again.
            self._outage.log.info("commit failed while the group rebalances: %s", error)
        else:
            self.settling.committed(ready)

    async def _detach(self, consumer: AIOKafkaConsumer) -> None:
        self.settling.keep(set())  # what is not committed will be read again
        await super()._detach(consumer)
