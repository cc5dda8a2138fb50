"""The way of one partition through the worker: stepped, told, stored, committable.

A lane takes turns in and never waits: stepping is synchronous. Behind it, two tasks carry things away:

    accept → step ─ letters ─→ teller: decisions, statuses, dead letters ─→ acknowledged
                  └ states ──→ storer: encoded; waits until all letters of those steps are acknowledged;
                               changelog ─→ acknowledged ─→ the offset may be committed

So a decision is on its way the moment it was made, a state that changes often is written once, and still nothing is
stored that has not been told, and nothing is committed that has not been stored. A crash at any point repeats
steps, never skips one; what is told again carries the same id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from streamproc.worker.limits import BACKLOG_RECORDS_MAX, STORE_LINGER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from streamproc.worker.partition_store import PartitionStore
    from streamproc.worker.publishing import OutgoingRecord, Publisher


class RecordProcessor(Protocol):
    """What takes records of one partition into a part of a table, and says what is to be told about them."""

    def accept(self, part: Any, records: Sequence[Any], /) -> list[OutgoingRecord]: ...


class PartitionPipeline:
    """One partition of the turns topic, or of another that is worked through in the same way."""

    def __init__(self, table: str, runs: Any, processor: RecordProcessor, publisher: Publisher) -> None:
        self._table = table
        self.partition = runs.partition
        self.position = -1  # the offset after the last one stepped; -1: none yet
        self.told = -1
        self.committable = -1  # the offset after the last one whose effects are stored
        self._runs = runs
        self._processor = processor
        self._publisher = publisher
        self._letters: list[OutgoingRecord] = []
        self._to_tell = asyncio.Event()
        self._to_store = asyncio.Event()
        self._hurry = asyncio.Event()
        self._moved = asyncio.Event()  # set for a moment, at each move
        self._closed = False

    @property
    def backlog(self) -> int:
        """Records stepped and not stored yet."""
        return self.position - self.committable

    def accept(self, records: Sequence[Any]) -> None:
        """Step records, oldest first."""
        if self.position < 0:
            self.position = self.told = self.committable = records[0].offset
        quiet = self.told == self.position
        letters = self._processor.accept(self._runs, records)
        self.position = records[-1].offset + 1
        if letters:
            self._letters += letters
            self._to_tell.set()
        elif quiet:
            self.told = self.position
        self._to_store.set()
        if self.backlog > BACKLOG_RECORDS_MAX // 2:
            self._hurry.set()

    @property
    def closed(self) -> bool:
        """Whether it publishes and stores no longer."""
        return self._closed

    async def room(self) -> bool:
        """Wait while too much is stepped and not stored: the broker is slow, or away. False where the lane was closed
        meanwhile: its records will be read again."""
        await self._until(lambda: self._closed or self.backlog < BACKLOG_RECORDS_MAX)
        return not self._closed

    async def settle(self) -> None:
        """Wait until all that was stepped is told and stored."""
        self._hurry.set()
        await self._until(lambda: self.committable >= self.position)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._moved.wait()

    def _has_moved(self) -> None:
        self._moved.set()
        self._moved.clear()

    def close(self) -> None:
        """Nobody will tell and store any more: let go of whoever waits for room."""
        self._closed = True
        self._has_moved()

    async def tell(self) -> None:
        """For ever: publish what was decided."""
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            position, letters, self._letters = self.position, self._letters, []
            await self._publisher.tell(self.partition, letters)
            if not self._letters:
                position = self.position  # what came meanwhile had nothing to tell
            self.told = position
            self._has_moved()

    async def store(self) -> None:
        """For ever: write the states that changed."""
        while True:
            await self._to_store.wait()
            await self._linger()
            self._to_store.clear()
            position, changes = self.position, self._runs.take()
            await self._until(lambda position=position: self.told >= position)  # type: ignore[misc]
            last = await self._publisher.store(self._table, self.partition, changes) if changes else None
            self._runs.stored(changes, last)
            self.committable = position
            self._has_moved()

    async def _linger(self) -> None:
        """Let states change a little longer, unless somebody waits.

        All lanes write at the same beats, so that the states of all partitions travel in one request.
        """
        to_beat_s = STORE_LINGER_S - asyncio.get_running_loop().time() % STORE_LINGER_S
        try:
            async with asyncio.timeout(to_beat_s if to_beat_s > STORE_LINGER_S / 2 else to_beat_s + STORE_LINGER_S):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()


class PartitionPipelines:
    """The lanes of this worker's partitions of one topic, whose memory is one table."""

    def __init__(
        self,
        table: str,
        store: PartitionStore[Any],
        processor: RecordProcessor,
        publisher: Publisher,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._table = table
        self.processor = processor
        self._store = store
        self._publisher = publisher
        self._failed = failed
        self._lanes: dict[int, PartitionPipeline] = {}
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self._broken = False

    def __getitem__(self, partition: int) -> PartitionPipeline:
        """The lane of a partition; opened where there is none yet."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = PartitionPipeline(self._table, self._store.runs(partition), self.processor, self._publisher)
            self._lanes[partition] = lane
            self._tasks[partition] = [self._run(lane.tell()), self._run(lane.store())]
        return lane

    def accept(self, partition: int, records: Sequence[Any]) -> None:
        """Process records of a partition, oldest first. A failure ends this run of the worker.

        The partition's runs are forgotten then: some of the records may have changed them, and what was decided about
        those was not published. The next run processes all of these records again.
        """
        try:
            self[partition].accept(records)
        except Exception as problem:
            self.close(partition)
            self._store.leave(partition)
            self._failed(problem)
            raise

    def get(self, partition: int) -> PartitionPipeline | None:
        """The lane of a partition, where one is open."""
        return self._lanes.get(partition)

    def committable(self) -> dict[int, int]:
        """For each partition the offset up to which everything is stored."""
        return {number: lane.committable for number, lane in self._lanes.items() if lane.committable >= 0}

    async def settle(self, timeout_s: float) -> bool:
        """Wait until every lane has stored all that it stepped; False where the broker does not take it in time.

        PartitionPipelines that did not settle are abandoned.
        """
        try:
            async with asyncio.timeout(0 if self._broken else timeout_s):
                await asyncio.gather(*(lane.settle() for lane in self._lanes.values()))
        except TimeoutError:
            self.abandon()
            return False
        return True

    def abandon(self) -> None:
        """Close the lanes that are not settled, and forget their runs: what they held will be stepped again."""
        for number, lane in list(self._lanes.items()):
            if lane.backlog:
                self.close(number)
                self._store.leave(number)

    def retain(self, partitions: set[int]) -> None:
        """Close the lanes of all other partitions."""
        for number in set(self._lanes) - partitions:
            self.close(number)

    def close(self, partition: int) -> None:
        """Stop a lane where it stands."""
        self._lanes.pop(partition).close()
        for task in self._tasks.pop(partition):
            task.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            self._broken = True
            self._failed(problem)
