"""The consumer of the batch path: it passes whole slices of one partition to the Faust agents.

Faust takes a single record to an agent through five tasks, a queue and two locks, in 60 to 170 µs. This consumer keeps
Faust's group membership, assignment, pauses, seeks and commits. It passes the records of the topics of turns and spend
to their agent in slices (`worker.slices`), and the records of the changelogs straight to the tables. Nothing of Faust
is patched: an app uses this consumer through `BatchTransport`. What it needs of their private parts is in
`worker.vendor`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, cast

from aiokafka.errors import ConsumerStoppedError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streamproc.worker.crash_marks import PartitionMarks, read_mark
from streamproc.worker.limits import CAREFUL_SLICE, DRAIN_TIMEOUT_S, SLICE_PAUSE_S, SLICE_RECORDS_MAX
from streamproc.worker.slices import Slice
from streamproc.worker.timed_records import TimedRecords
from streamproc.worker.vendor import SeekingConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streamproc.worker.partition_pipeline import PartitionPipelines
    from streamproc.worker.partition_store import PartitionStore
    from streamproc.worker.records import Fetched

log = logging.getLogger("streamproc.worker")

IDLE_S = 0.05  # between two checks for a partition to read, while there is none (a rebalance, a recovery)
Batch = tuple[Any, "Sequence[Any]"]
"""Fetched records of one partition, oldest first, with the partition."""

COMMIT_TRIES = 3  # a commit that is under way may miss the latest offsets; one that is refused stays refused


class BatchConsumer(SeekingConsumer):
    """Faust's consumer, draining whole partition batches."""

    in_hand: frozenset[TP] = frozenset()
    """The partitions of which some fetched records may not be processed yet."""
    waiting_for: TP | None = None
    """The partition whose agent has records and has not answered yet."""
    _offered: Slice | None = None
    _restored = 0  # records of the changelogs read in the current recovery
    _restoring_s = 0.0  # when it began, by the monotonic clock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._init_marks()

    def _init_marks(self) -> None:
        self._marks: dict[TP, PartitionMarks] = {}
        self._committed_metadata: dict[TP, str] = {}
        self._commit_lock = asyncio.Lock()
        self._name = uuid.uuid4().hex[:8]

    @property
    def _pipelines(self) -> Mapping[str, PartitionPipelines]:
        return cast("BatchTransport", self.transport).pipelines

    async def drain(self, stopped: Callable[[], bool]) -> None:
        """Fetch and dispatch records until `stopped`."""
        held: list[Batch] = []
        asked = -1
        try:
            while not stopped():
                if not held:
                    if not self.flow_active:
                        await self.wait(self.can_resume_flow.wait())
                        continue
                    asked = self.app.consumer_generation_id
                wanted = self.active_partitions().difference(tp for tp, _ in held)
                if not wanted and not held:
                    await asyncio.sleep(IDLE_S)
                    continue
                records = await self.kafka.fetch(wanted, wait=not held)
                batches = [*records.items(), *held]
                self.in_hand = frozenset(TP(*tp) for tp, _ in batches)
                held = await self._dispatch(batches, asked)
                self.in_hand = frozenset(TP(*tp) for tp, _ in held)
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _dispatch(self, batches: Sequence[Batch], asked: int) -> list[Batch]:
        """Process one slice of each partition; return the records that are left.

        Between two rounds, records of other partitions are fetched, so a long backlog does not delay them. `asked` is
        the generation of the group in which the records were requested. Records left over when a rebalance begins are
        given back: after it, every partition is read from its committed offset.
        """
        generation = self.app.consumer_generation_id
        changelogs = self.app.tables.changelog_topics
        events = [(tp, batch) for tp, batch in batches if tp.topic not in changelogs]
        for tp, batch in batches:
            if tp.topic in changelogs and not await self._restore(TP(tp.topic, tp.partition), batch, generation):
                # Another recovery begins, from the offsets in memory; it must not lose these records.
                self._give_back(events)
                return []
        if self.app.in_recovery:
            self._recovered()
        left: list[Batch] = []
        for place, (tp, batch) in enumerate(events):
            taken = await self._step(tp, batch[:SLICE_RECORDS_MAX], asked)
            if 0 < taken < min(len(batch), SLICE_RECORDS_MAX):  # it took `SLICE_S`
                await asyncio.sleep(SLICE_PAUSE_S)
            if not taken:
                self._give_back([*left, *events[place:]])
                return []
            if taken < len(batch):
                left.append((tp, batch[taken:]))
        return left

    async def _step(self, tp: TP, records: Sequence[Fetched], asked: int) -> int:
        """Pass the next records of a partition to its agent; return how many it has processed, 0 if it may not."""
        await self._channels_settled(asked)
        pipeline = self._pipelines[tp.topic][tp.partition]
        if not await pipeline.room() or not self._may_go_on(asked):
            return 0
        marks = await self._marks_of(tp, records[0].offset, asked)
        if records[0].offset >= marks.careful_end:
            return await self._offer(tp, records, asked) if self._may_go_on(asked) else 0
        end = marks.careful_slice(records[0].offset)
        few = [record for record in records[:CAREFUL_SLICE] if record.offset < end]
        return await self._step_carefully(tp, few, marks, asked)

    async def _step_carefully(self, tp: TP, records: Sequence[Fetched], marks: PartitionMarks, asked: int) -> int:
        """Step a few records after a crash, named in the committed metadata meanwhile; refuse one that is poison."""
        pipeline = self._pipelines[tp.topic][tp.partition]
        if marks.is_poison(records[0].offset):
            if not self._may_go_on(asked):
                return 0
            pipeline.refuse(records[0])
            return 1
        marks.take(records[0].offset, records[-1].offset)
        try:
            if not await self._commit_marks((tp,)) or not self._may_go_on(asked):
                await asyncio.sleep(IDLE_S)
                return 0
            taken = await self._offer(tp, records, asked)
        finally:
            if not marks.failed:
                marks.release()
        await self._commit_marks((tp,))
        return taken

    async def _offer(self, tp: TP, records: Sequence[Fetched], asked: int) -> int:
        pipeline = self._pipelines[tp.topic][tp.partition]
        offered = Slice(tp, records, lambda: self._may_go_on(asked) and not pipeline.closed)
        self._offered, self.waiting_for = offered, tp
        try:
            await cast("BatchTransport", self.transport).channels[tp.topic].put(offered)
            return await offered.answer
        except Exception:
            self._marks[tp].failed = True
            raise
        finally:
            offered.withdraw()
            self._offered = self.waiting_for = None

    async def _channels_settled(self, asked: int) -> None:
        """Wait until a rebalance is over: Faust clears the agents' channels once more after reading has resumed."""
        while self.app.rebalancing and self._may_go_on(asked):
            await asyncio.sleep(IDLE_S)

    def stop_flow(self) -> None:
        """Stop the flow for a rebalance or the end; records that no agent has processed are read again."""
        super().stop_flow()
        self._withdraw()

    def _withdraw(self) -> None:
        if self._offered is not None:
            self._offered.withdraw()

    def _give_back(self, events: Sequence[Batch]) -> None:
        """Seek back to records that will not be processed now, so that they are fetched again.

        A fetch that began before a rebalance may end during the recovery after it, when no run is known yet, or later,
        with records after the committed offsets. If the partition is sought later, or has moved to another worker,
        this changes nothing.
        """
        for tp, batch in events:
            if batch and self.kafka.next_offset(tp) == batch[-1].offset + 1:
                self.kafka.seek(tp, batch[0].offset)

    def _may_go_on(self, generation: int) -> bool:
        return self.flow_active and not self.should_stop and self.app.consumer_generation_id == generation

    # Recovery: Faust decides when and from where, the records go to the table in batches.

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Begin a recovery, without the signal that ended the previous one.

        Faust clears that signal only when its own queue wakes up, up to 5 s later. A rebalance that came sooner got no
        recovery at all, and its runs lost their state.
        """
        self.recovery.active_highwaters.clear()
        self.recovery.signal_recovery_end.clear()
        await super().on_partitions_assigned(assigned, generation_id)

    async def _restore(self, tp: TP, batch: Sequence[Any], generation: int) -> bool:
        """Restore records of a changelog; return False if another generation of the group began meanwhile."""
        if not self._restored:
            self._restoring_s = time.monotonic()
        recovery = self.recovery
        runs = cast("BatchTransport", self.transport).stores[tp.topic].partition_of(tp.partition)
        while batch:
            seen = recovery.active_offsets.get(tp)
            timed = TimedRecords(batch)
            if seen is None or batch[0].offset > seen:
                runs.restore_batch(timed)
            else:
                runs.restore_batch(record for record in timed if record.offset > seen)
            self._restored += len(timed)
            recovery.active_offsets[tp] = batch[len(timed) - 1].offset
            batch = batch[len(timed) :]
            await asyncio.sleep(0)  # the next fetch goes out, and heartbeats
            if self.app.consumer_generation_id != generation:
                return False
        return True

    def _recovered(self) -> None:
        """End the recovery once every changelog partition is read up to its end at the start of the recovery.

        The position decides, not the last record, which compaction may have removed.
        """
        recovery = self.recovery
        for tp in recovery.active_tps:
            position = self.kafka.next_offset(tp)
            if position is not None and position - 1 > (recovery.active_offsets.get(tp) or -1):
                recovery.active_offsets[tp] = position - 1
        ends_known = all(tp in recovery.active_highwaters for tp in recovery.active_tps)
        if recovery.in_recovery and ends_known and not recovery.need_recovery():
            if self._restored:
                log.info("recovered records=%d s=%.3f", self._restored, time.monotonic() - self._restoring_s)
                self._restored = 0
            self.end_recovery()

    # Pauses reach aiokafka for the changelogs: outside recoveries they are written and not read.

    def pause_partitions(self, tps: Any) -> None:
        super().pause_partitions(tps)
        self.kafka.hold(self.changelogs(tps), held=True)

    def resume_partitions(self, tps: Any) -> None:
        super().resume_partitions(tps)
        self.kafka.hold(self.changelogs(tps), held=False)

    # Commits: the offsets up to which the pipelines have stored everything.

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek all partitions, and let the pipelines that stayed open continue from there.

        Otherwise a commit that is under way could take the group back to where such a pipeline stands.
        """
        offsets = await super().seek_to_committed()
        self._catch_up(offsets)
        return offsets

    def _catch_up(self, offsets: Mapping[TP, int | None]) -> None:
        for tp, offset in offsets.items():
            pipeline = self._pipelines[tp.topic].get(tp.partition) if tp.topic in self._pipelines else None
            if pipeline is not None and offset:
                pipeline.catch_up(offset)

    def committable(self) -> dict[TP, int]:
        """Return the offset up to which each partition is stored."""
        return {
            TP(topic, number): offset
            for topic, pipelines in self._pipelines.items()
            for number, offset in pipelines.committable().items()
        }

    async def commit_offsets(self, offsets: Mapping[TP, int]) -> bool:
        """Commit offsets with the marks of their partitions; return False if that is impossible now."""
        async with self._commit_lock:  # an older mark must not replace a newer one
            mine = self.assignment()
            committable = {tp: offset for tp, offset in offsets.items() if tp in mine}
            marked = {tp: (offset, self._metadata(tp, offset)) for tp, offset in committable.items()}
            if not marked or not await self.commit_with_metadata(marked):
                return False
            self.committed_offsets.update(committable)
            self._committed_metadata.update({tp: metadata for tp, (_, metadata) in marked.items()})
            return True

    # Marks: which records were in hand when a worker crashed.

    async def _marks_of(self, tp: TP, first: int, asked: int) -> PartitionMarks:
        """Return the marks of a partition. With the first slice after a rebalance, take it over."""
        marks = self._marks.get(tp)
        if marks is None or marks.generation != asked:
            committed, metadata = await self.kafka.committed_with_metadata(tp)
            found, start = read_mark(metadata), first if committed is None else committed
            end = (await self.highwaters(tp))[tp] if found.tries else start
            marks = self._marks[tp] = PartitionMarks(asked, start, found, end, self._name)
            if marks.careful_end > start:
                log.warning(
                    "%s[%d]: the last worker crashed; taking records up to %d a few at a time",
                    tp.topic, tp.partition, marks.careful_end,
                )  # fmt: skip
            await self._commit_marks((tp,))
        return marks

    def _metadata(self, tp: TP, offset: int) -> str:
        marks = self._marks.get(tp)
        return marks.metadata(offset) if marks is not None else ""

    async def _commit_marks(self, tps: Iterable[TP]) -> bool:
        """Commit the marks of partitions, with the offsets up to which everything is stored."""
        offsets: dict[TP, int] = {}
        for tp in tps:
            pipeline = self._pipelines[tp.topic].get(tp.partition)
            stored = pipeline.committable if pipeline is not None else -1
            offsets[tp] = max(stored, self.committed_offsets.get(tp) or -1, self._marks[tp].start)
        return await self.commit_offsets(offsets)

    async def _leave_marks(self) -> None:
        """Note that this worker hands over its partitions without a crash."""
        for marks in self._marks.values():
            if not marks.failed:
                marks.leave()
        mine = self.assignment()
        left = [tp for tp in self._marks if tp in mine and self._committed_metadata.get(tp)]
        if left:
            await self._commit_marks(left)

    async def wait_empty(self) -> None:
        """Publish, store and commit everything processed, before partitions move and before the worker stops.

        A worker that the group has expelled (it was frozen, say) does not: other workers have newer states of its runs.
        """
        if self.kafka.expelled:
            for pipelines in self._pipelines.values():
                pipelines.abandon()
            return
        timeout_s = min(DRAIN_TIMEOUT_S, self.app.conf.broker_rebalance_timeout / 2)
        settled = await asyncio.gather(*(pipelines.settle(timeout_s) for pipelines in self._pipelines.values()))
        if not all(settled):
            self.log.warning("the broker does not acknowledge in time; unpublished decisions are made again after this")
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                for _ in range(COMMIT_TRIES):
                    if not self._filter_committable_offsets(()):
                        break
                    await self.commit()
                await self._leave_marks()
        except TimeoutError:
            self.log.warning("offsets not committed; the broker does not answer")

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust's check assumes that records go through its streams."""


class QuietProducer(driver.Producer):
    """Faust's producer, which creates no topics: only `streamproc topics apply` does."""

    async def create_topic(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


class BatchTransport(driver.Transport):
    """The transport of a worker: pipelines and channels by topic, stores by changelog."""

    Consumer: ClassVar[type[BatchConsumer]] = BatchConsumer
    Producer = QuietProducer

    def __init__(
        self,
        url: Any,
        app: Any,
        pipelines: Mapping[str, PartitionPipelines],
        stores: Mapping[str, PartitionStore[Any]],
        channels: Mapping[str, Any],
    ) -> None:
        super().__init__(url, app)
        self.pipelines = pipelines
        self.stores = stores
        self.channels = channels
