"""The pipeline of one partition: records are processed, published, stored, and then committed.

`accept` is synchronous and never waits. Behind it, two tasks publish and store:

    accept → step ─ outgoing records ─→ publish: decisions, statuses, dead letters ─→ acknowledged
                  └ changed states ───→ store: encode; wait until the outgoing records of those steps are acknowledged;
                                        changelog ─→ acknowledged ─→ the offset may be committed

A decision leaves the moment it is made, and a state that changes often is written once. Still, no state is stored
before its decisions are published, and no offset is committed before its states are stored. A crash at any point
repeats steps and never skips one, and a decision that is published again carries the same id.

While a partition lags, what its turns charge to accounts leaves only before the states do: many turns of a session then
make one statement.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from streamproc.worker.limits import BACKLOG_RECORDS_MAX, SLICE_RECORDS_MAX, STORE_LINGER_S, STORE_RECORDS_MAX
from streamproc.worker.timed_records import TimedRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from streamproc.worker.partition_store import PartitionStore
    from streamproc.worker.publishing import OutgoingRecord, Publisher
    from streamproc.worker.spend import AccountProcessor
    from streamproc.worker.turn_processor import TurnProcessor


class PartitionPipeline:
    """The pipeline of one partition of the topic of turns or of spend."""

    def __init__(
        self,
        table: str,
        runs: Any,
        processor: TurnProcessor | AccountProcessor,
        publisher: Publisher,
        linger_s: float = STORE_LINGER_S,
    ) -> None:
        self._table = table
        self._linger_s = linger_s
        self.partition = runs.partition
        self.position = -1  # the offset after the last record processed; -1: none yet
        self.stepped_ms = 0  # log time of that record
        self.committable = -1  # the offset after the last record whose effects are stored
        self._runs = runs
        self._processor = processor
        self._publisher = publisher
        self._outgoing: list[OutgoingRecord] = []
        # Outgoing records so far, and those that are acknowledged: no offsets, as records may be read again.
        self._given = self._sent = 0
        self._to_publish = asyncio.Event()
        self._to_store = asyncio.Event()
        self._hurry = asyncio.Event()
        self._moved = asyncio.Event()  # set for a moment, whenever one of the offsets moves
        self._closed = False

    @property
    def backlog(self) -> int:
        """Records that are processed and not stored yet."""
        return self.position - self.committable

    def accept(self, records: Sequence[Any]) -> int:
        """Process records, oldest first, for `SLICE_S`; return how many of them, at least one."""
        if self.position < 0:
            self.position = self.committable = records[0].offset
        timed = TimedRecords(records)
        outgoing = self._processor.accept(self._runs, timed, more=len(records) >= SLICE_RECORDS_MAX)
        last = records[len(timed) - 1]
        self.stepped_ms = last.timestamp or 0
        self._accepted(last.offset + 1, outgoing)
        return len(timed)

    def refuse(self, record: Any) -> None:
        """Put a record that crashes the process into the dead-letter topic, without looking into it."""
        if self.position < 0:
            self.position = self.committable = record.offset
        self._accepted(record.offset + 1, [self._processor.refuse(self.partition, record)])

    def _accepted(self, position: int, outgoing: list[OutgoingRecord]) -> None:
        self.position = position
        if outgoing:
            self.give(outgoing)
        self._to_store.set()
        if self.backlog > BACKLOG_RECORDS_MAX // 2:
            self._hurry.set()

    def give(self, outgoing: list[OutgoingRecord]) -> int:
        """Publish records soon, in order with the others; return how many were given so far."""
        self._outgoing += outgoing
        self._given += len(outgoing)
        self._to_publish.set()
        return self._given

    async def publish_besides(self, outgoing: list[OutgoingRecord]) -> bool:
        """Publish records that follow from no event, in order with the others, and wait until they are acknowledged.

        Return False if the pipeline was closed meanwhile: some of them may not be published then.
        """
        given = self.give(outgoing)
        await self._until(lambda: self._closed or self._sent >= given)
        return not self._closed

    def catch_up(self, committed: int) -> None:
        """After a rebalance: take over the offset up to which another worker has stored everything meanwhile."""
        if not self.backlog:
            self.position = self.committable = max(self.position, committed)

    @property
    def closed(self) -> bool:
        """Whether publishing and storing have ended."""
        return self._closed

    async def room(self) -> bool:
        """Wait while too many records are not stored yet, because the broker is slow or away.

        Return False if the pipeline was closed meanwhile: its records are read again.
        """
        await self._until(lambda: self._closed or self.backlog < BACKLOG_RECORDS_MAX)
        return not self._closed

    async def settle(self) -> None:
        """Wait until everything that was processed is published and stored."""
        self._hurry.set()
        await self._until(lambda: self.committable >= self.position)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._moved.wait()

    def _has_moved(self) -> None:
        self._moved.set()
        self._moved.clear()

    def store_soon(self) -> None:
        """Write what has changed without a record, such as a state that an expelled worker overwrote."""
        self._to_store.set()

    def close(self) -> None:
        """Mark the pipeline as closed, and wake up the callers of `room`."""
        self._closed = True
        self._has_moved()

    async def publish(self) -> None:
        """Publish outgoing records. Never returns."""
        while True:
            await self._to_publish.wait()
            self._to_publish.clear()
            outgoing, self._outgoing = self._outgoing, []
            await self._publisher.publish(self.partition, outgoing)
            self._sent += len(outgoing)
            self._has_moved()

    async def store(self) -> None:
        """Write changed states to the changelog. Never returns."""
        while True:
            await self._to_store.wait()
            await self._linger()
            self._to_store.clear()
            position, changed = self.position, self._runs.changed
            for _ in range(0, max(1, changed), STORE_RECORDS_MAX):
                await self._store_some()
            self.committable = max(self.committable, position)  # of the first write after a recovery: no record yet
            self._has_moved()

    async def _store_some(self) -> None:
        """Write the states that changed first. They may be newer than at the start of `store`."""
        if due := self._processor.due(self._runs):
            self.give(due)
        given, changes = self._given, self._runs.take(STORE_RECORDS_MAX)
        await self._until(lambda: self._sent >= given)
        last = await self._publisher.store(self._table, self.partition, changes) if changes else None
        self._runs.stored(changes, last)

    async def _linger(self) -> None:
        """Wait, unless a caller is waiting, so that states which change again are written once.

        All pipelines write at the same moments, and the states of all partitions travel in one request.
        """
        linger_s = self._linger_s
        to_beat_s = linger_s - asyncio.get_running_loop().time() % linger_s
        try:
            async with asyncio.timeout(to_beat_s if to_beat_s > linger_s / 2 else to_beat_s + linger_s):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()


class PartitionPipelines:
    """The pipelines of this worker's partitions of one topic. They write one table."""

    def __init__(
        self,
        table: str,
        store: PartitionStore[Any],
        processor: TurnProcessor | AccountProcessor,
        publisher: Publisher,
        failed: Callable[[BaseException], None],
        linger_s: float = STORE_LINGER_S,
    ) -> None:
        """A state that changes again within `linger_s` is written once."""
        self._table = table
        self._linger_s = linger_s
        self.processor = processor
        self._store = store
        self._publisher = publisher
        self._failed = failed
        self._pipelines: dict[int, PartitionPipeline] = {}
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self._broken = False

    def __getitem__(self, partition: int) -> PartitionPipeline:
        """Return the pipeline of a partition; open one if there is none yet."""
        pipeline = self._pipelines.get(partition)
        if pipeline is None:
            pipeline = PartitionPipeline(
                self._table, self._store.partition_of(partition), self.processor, self._publisher, self._linger_s
            )
            self._pipelines[partition] = pipeline
            self._tasks[partition] = [self._run(pipeline.publish()), self._run(pipeline.store())]
        return pipeline

    def accept(self, partition: int, records: Sequence[Any]) -> int:
        """Process records of a partition, oldest first; return how many. A failure ends this run of the worker.

        The runs of the partition are dropped then: some records may have changed them, and the decisions about those
        are not published. The next run of the worker processes all of these records again.
        """
        try:
            return self[partition].accept(records)
        except Exception as problem:
            self.close(partition)
            self._store.leave(partition)
            self._failed(problem)
            raise

    def repair(self, partitions: Iterable[int]) -> None:
        """After a recovery: write the states again that an expelled worker overwrote in the changelog."""
        for partition in partitions:
            if self._store.partition_of(partition).overwritten:
                self[partition].store_soon()

    def get(self, partition: int) -> PartitionPipeline | None:
        """Return the pipeline of a partition if one is open."""
        return self._pipelines.get(partition)

    def committable(self) -> dict[int, int]:
        """Return the offset of each partition up to which everything is stored."""
        return {
            number: pipeline.committable for number, pipeline in self._pipelines.items() if pipeline.committable >= 0
        }

    async def settle(self, timeout_s: float) -> bool:
        """Wait until every pipeline has stored what it processed; return False if that takes too long.

        Pipelines that do not settle in time are abandoned.
        """
        try:
            async with asyncio.timeout(0 if self._broken else timeout_s):
                await asyncio.gather(*(pipeline.settle() for pipeline in self._pipelines.values()))
        except TimeoutError:
            self.abandon()
            return False
        return True

    def abandon(self) -> None:
        """Close the pipelines that are not settled, and drop their runs: their records are processed again."""
        for number, pipeline in list(self._pipelines.items()):
            if pipeline.backlog:
                self.close(number)
                self._store.leave(number)

    def retain(self, partitions: set[int]) -> None:
        """Close the pipelines of all other partitions."""
        for number in set(self._pipelines) - partitions:
            self.close(number)

    def close(self, partition: int) -> None:
        """Close a pipeline at once."""
        self._pipelines.pop(partition).close()
        for task in self._tasks.pop(partition):
            task.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            self._broken = True
            self._failed(problem)
