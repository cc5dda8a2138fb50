"""The seam: whole batches of one partition, out of Faust's consumer into a synchronous processor.

Faust hands a record through five tasks, a queue and two locks to an agent: 60 to 170 µs. Here its consumer, which
keeps membership, assignment, pauses, seeks and commits as Faust has them, gives the records of the turns topic to
the partition's `Lane`, in slices, and those of the changelog straight to the table. Nothing of Faust is patched: an
app uses this by being given a `BatchTransport`.

Faust runs its consumer in a thread of its own, so that agents which block do not stop heartbeats. Slices are bounded,
so this one stays in the app's loop: a record does not wait for two threads to wake up, and no callback of a
rebalance can run beside a step. `deploy` pins faust, mode and aiokafka exactly; the tests of this file say what broke.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, ClassVar, cast

from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service
from mode.utils.futures import maybe_async

from streamproc.worker.limits import DRAIN_TIMEOUT_S, FETCH_WAIT_MS, SLICE_RECORDS_MAX
from streamproc.worker.records import fetched
from streamproc.worker.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamproc.worker.partition_pipeline import PartitionPipelines
    from streamproc.worker.partition_store import PartitionStore
    from streamproc.worker.records import Fetched

log = logging.getLogger("streamproc.worker")

IDLE_S = 0.05  # between two looks for a partition to read, while there is none (a rebalance, a recovery)
COMMIT_TRIES = 3  # one that is under way already commits less than there is by now; one that is refused stays so
POLL_S = 1.0  # how long one wait for records lasts


class SameLoopConsumer(driver.AIOKafkaConsumerThread):
    """Faust's "consumer thread", without a thread: its calls run where they are made."""

    wait_for_shutdown = False

    async def maybe_start(self) -> bool:
        return await Service.maybe_start(self)

    async def start(self) -> None:
        await Service.start(self)

    async def stop(self) -> None:
        await Service.stop(self)

    async def crash(self, reason: BaseException) -> None:
        await Service.crash(self, reason)

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    def _stopped_set(self) -> None:
        self._stopped.set()

    def set_shutdown(self) -> None:
        self._shutdown.set()

    async def _stop_children(self) -> None:
        await self._default_stop_children()

    async def _stop_futures(self) -> None:
        await self._default_stop_futures()

    async def _stop_exit_stacks(self) -> None:
        await self._default_stop_exit_stacks()

    async def call_thread(self, fun: Any, *args: Any, **kwargs: Any) -> Any:
        return await maybe_async(fun(*args, **kwargs))

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes 1.5 s. A partition that was still being worked on when a fetch went out is not in it, and its
        # records wait for the next one.
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit; False where that is impossible now. It is tried again; only repeated work depends on it."""
        try:
            await self._ensure_consumer().commit({TopicPartition(*tp): offset for tp, offset in offsets.items()})
        except (CommitFailedError, IllegalStateError) as problem:
            self.log.info("offsets not committed, the group is rebalancing: %s", problem)
            return False
        except KafkaError as problem:
            self.log.warning("offsets not committed, trying again: %r", problem)
            return False
        return True

    @property
    def expelled(self) -> bool:
        """Whether the group goes on without this worker, or it has never been in it."""
        consumer: Any = self._consumer
        coordinator = consumer._coordinator if consumer is not None else None
        return coordinator is None or bool(coordinator.generation == driver.DEFAULT_GENERATION_ID)

    def hold(self, tps: set[TP], *, held: bool) -> None:
        """Stop or go on fetching: a fetch that returns what nobody takes delays the partitions that share it."""
        consumer = self._ensure_consumer()
        mine = [tp for tp in consumer.assignment() if tp in tps]
        if mine and held:
            consumer.pause(*mine)
        elif mine:
            consumer.resume(*mine)

    async def fetch(self, tps: set[TP]) -> Mapping[TP, Sequence[Fetched]]:
        """Records of some of these partitions; none after a while without any."""
        consumer = self._ensure_consumer()
        fetcher: Any = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        if fetcher._fetch_task.done():
            # By an error that aiokafka does not expect, its fetching ends for good. A new life goes on at once.
            raise KafkaError("aiokafka fetches no more") from fetcher._fetch_task.exception()
        with fetcher._subscriptions.fetch_context():
            return await fetched(fetcher, tps, POLL_S)

    def next_offset(self, tp: TP) -> int | None:
        """The offset of the next record to fetch; None while it is unknown."""
        assignment = self._ensure_consumer()._subscription.subscription.assignment
        state = assignment.state_value(tp) if assignment is not None else None
        return state._position if state is not None else None


class SeekingConsumer(driver.Consumer):
    """Faust's consumer, which loses nothing of a group that has committed nothing yet.

    Faust drops what it fetched while a rebalance or recovery was going on, and seeks to the committed offset to read it
    again. Where there is none, or it is 0, aiokafka does not move.
    """

    _sought = -1  # the generation of the group whose partitions have been sought
    _waiting: frozenset[TP] = frozenset()

    def resume_partitions(self, tps: Any) -> None:
        """Go on reading: the changelog at once, events only from where they must be read.

        Faust resumes partitions first, and seeks then. What was read in between would count as done, and what was
        dropped before it would be skipped.
        """
        if self._sought != self.app.consumer_generation_id:
            early = frozenset(tp for tp in tps if not self._is_changelog_tp(tp))
            self._waiting |= early
            tps = set(tps) - early
        super().resume_partitions(tps)

    async def perform_seek(self) -> None:
        """Seek all partitions to where they must be read from, and only then go on reading them."""
        generation = self.app.consumer_generation_id
        await super().perform_seek()
        waiting, self._waiting = self._waiting, frozenset()
        if generation == self.app.consumer_generation_id:
            self._sought = generation
            super().resume_partitions(set(waiting))

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek all partitions to their committed offset, or to their beginning."""
        offsets = await super().seek_to_committed()
        fresh = [tp for tp, offset in offsets.items() if not offset and not self._is_changelog_tp(tp)]
        if fresh:
            # Not `seek_to_beginning`: that waits for a fetch, which waits for somebody to take what was fetched before.
            for tp, beginning in (await self.earliest_offsets(*fresh)).items():
                self._thread.seek(tp, beginning)
        return offsets


class BatchConsumer(SeekingConsumer):
    """Faust's consumer, draining partition batches."""

    _thread: SameLoopConsumer
    in_hand = False
    """Whether records are fetched and not all of them stepped."""
    waiting_for: TP | None = None
    """The partition of which an agent has records, or should take some."""
    _offered: Slice | None = None
    _restored = 0  # records of the changelogs, in the recovery that goes on
    _restoring_s = 0.0  # since when, by the monotonic clock

    def _new_consumer_thread(self) -> SameLoopConsumer:
        return SameLoopConsumer(self, loop=self.loop, thread_loop=self.loop, beacon=self.beacon)

    @property
    def _pipelines(self) -> Mapping[str, PartitionPipelines]:
        return cast("BatchTransport", self.transport).pipelines

    async def _drain_messages(self, fetcher: Any) -> None:
        """For as long as the fetcher runs: fetch, and hand over."""
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                if not self.flow_active:
                    await self.wait(self.can_resume_flow.wait())
                    continue
                active = self._get_active_partitions()
                if not active:
                    await asyncio.sleep(IDLE_S)
                    continue
                asked = self.app.consumer_generation_id
                records = await self._thread.fetch(set(active))
                self.in_hand = True
                await self._hand_over(records, asked)
                self.in_hand = False
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _hand_over(self, records: Mapping[TP, Sequence[Any]], asked: int) -> None:
        """Slices of the partitions in turn: one with much to catch up on does not hold up the others. `asked` is the
        generation of the group in which they were asked for.

        What is left when a rebalance begins is given back: after it, every partition is read from its committed offset.
        """
        generation = self.app.consumer_generation_id
        changelogs = self.app.tables.changelog_topics
        events: list[tuple[TP, Sequence[Any]]] = []
        for tp, batch in records.items():
            if tp.topic not in changelogs:
                events.append((tp, batch))
                continue
            self._restore(TP(tp.topic, tp.partition), batch)
            await asyncio.sleep(0)  # the next fetch goes out, and heartbeats
            if self.app.consumer_generation_id != generation:
                # Another recovery begins, from what is in memory; this one must not lose what was fetched.
                self._give_back([(tp, batch) for tp, batch in records.items() if tp.topic not in changelogs])
                return
        if self.app.in_recovery:
            self._recovered()
        start = 0
        while events:
            for place, (tp, batch) in enumerate(events):
                if not await self._step(tp, batch[start : start + SLICE_RECORDS_MAX], asked):
                    self._give_back([(tp, batch[start:]) for tp, batch in events[place:]])
                    self._give_back([(tp, batch[start + SLICE_RECORDS_MAX :]) for tp, batch in events[:place]])
                    return
            start += SLICE_RECORDS_MAX
            events = [(tp, batch) for tp, batch in events if len(batch) > start]

    async def _step(self, tp: TP, records: Sequence[Fetched], asked: int) -> bool:
        """Pass the next records of a partition to its agent; False where they are not processed, or not all of them."""
        await self._channels_settled(asked)
        pipeline = self._pipelines[tp.topic][tp.partition]
        if not await pipeline.room() or not self._may_go_on(asked):
            return False
        offered = Slice(tp, records, lambda: self._may_go_on(asked) and not pipeline.closed)
        self._offered, self.waiting_for = offered, tp
        try:
            await cast("BatchTransport", self.transport).channels[tp.topic].put(offered)
            return await offered.answer
        finally:
            offered.withdraw()
            self._offered = self.waiting_for = None

    async def _channels_settled(self, asked: int) -> None:
        """Wait until a rebalance is over: Faust clears the agents' channels once more after reading has resumed."""
        while self.app.rebalancing and self._may_go_on(asked):
            await asyncio.sleep(IDLE_S)

    def stop_flow(self) -> None:
        """A rebalance begins, or the worker stops: what no agent has processed yet is read again."""
        super().stop_flow()
        self._withdraw()

    def _withdraw(self) -> None:
        if self._offered is not None:
            self._offered.withdraw()

    def _give_back(self, events: Sequence[tuple[TP, Sequence[Any]]]) -> None:
        """Let records be fetched again that nobody will step.

        A fetch that began before a rebalance may end in the recovery after it, when no run is known yet, or after that,
        with what stands behind the committed offsets. Where a partition is sought later, or others have it, this
        changes nothing.
        """
        for tp, batch in events:
            if batch and self._thread.next_offset(tp) == batch[-1].offset + 1:
                self._thread.seek(tp, batch[0].offset)

    def _may_go_on(self, generation: int) -> bool:
        return self.flow_active and not self.should_stop and self.app.consumer_generation_id == generation

    # Recovery: Faust decides when and from where, the records go to the table in batches.

    @property
    def _recovery(self) -> Any:
        tables: Any = self.app.tables
        return tables.recovery

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """A recovery begins: what ended the last one says nothing of this one.

        Faust takes the sign that a recovery is over away only when its own queue wakes up, up to 5 s later. A rebalance
        that came sooner got no recovery at all, and its runs began anew.
        """
        self._recovery.active_highwaters.clear()
        self._recovery.signal_recovery_end.clear()
        await super().on_partitions_assigned(assigned, generation_id)

    def _restore(self, tp: TP, batch: Sequence[Any]) -> None:
        if not self._restored:
            self._restoring_s = time.monotonic()
        self._restored += len(batch)
        recovery = self._recovery
        seen = recovery.active_offsets.get(tp)
        runs = cast("BatchTransport", self.transport).stores[tp.topic].runs(tp.partition)
        for record in batch:
            if seen is None or record.offset > seen:
                runs.restore(record.key, record.value, record.offset)
        recovery.active_offsets[tp] = batch[-1].offset

    def _recovered(self) -> None:
        """End the recovery when every changelog partition was read to where it ended when the recovery began.

        By the position, not by the last record: compaction may have taken the last one away.
        """
        recovery = self._recovery
        for tp in recovery.active_tps:
            position = self._thread.next_offset(tp)
            if position is not None and position - 1 > (recovery.active_offsets.get(tp) or -1):
                recovery.active_offsets[tp] = position - 1
        ends_known = all(tp in recovery.active_highwaters for tp in recovery.active_tps)
        if recovery.in_recovery and ends_known and not recovery.need_recovery():
            if self._restored:
                log.info("recovered records=%d s=%.3f", self._restored, time.monotonic() - self._restoring_s)
                self._restored = 0
            recovery._set_recovery_ended()
            recovery.signal_recovery_end.set()

    # Pauses reach aiokafka for the changelog: outside of recoveries it is written and not read.

    def pause_partitions(self, tps: Any) -> None:
        super().pause_partitions(tps)
        self._thread.hold(self._changelogs(tps), held=True)

    def resume_partitions(self, tps: Any) -> None:
        super().resume_partitions(tps)
        self._thread.hold(self._changelogs(tps), held=False)

    def _changelogs(self, tps: Any) -> set[TP]:
        return {tp for tp in tps if self._is_changelog_tp(tp)}

    # Commits: what the lanes have stored.

    def _filter_committable_offsets(self, tps: Any) -> dict[TP, int]:  # noqa: ARG002 (Faust's signature)
        offsets = {
            TP(topic, number): offset
            for topic, lanes in self._pipelines.items()
            for number, offset in lanes.committable().items()
        }
        return {tp: offset for tp, offset in offsets.items() if self._should_commit(tp, offset)}

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:  # noqa: ARG002 (Faust's signature)
        mine = self.assignment()
        committable = {tp: offset for tp, offset in offsets.items() if tp in mine}
        if not committable or not await self._commit(committable):
            return False
        self._committed_offset.update(committable)
        return True

    async def wait_empty(self) -> None:
        """Before partitions go, and before the worker stops: all that was stepped is told, stored and committed.

        Not by a worker that the group has expelled (it was frozen, say): others have its runs, and know them better.
        """
        if self._thread.expelled:
            for lanes in self._pipelines.values():
                lanes.abandon()
            return
        timeout_s = min(DRAIN_TIMEOUT_S, self.app.conf.broker_rebalance_timeout / 2)
        settled = await asyncio.gather(*(lanes.settle(timeout_s) for lanes in self._pipelines.values()))
        if not all(settled):
            self.log.warning("the broker does not take what was decided; it will be decided again after the rebalance")
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                for _ in range(COMMIT_TRIES):
                    if not self._filter_committable_offsets(()):
                        return
                    await self.commit()
        except TimeoutError:
            self.log.warning("offsets not committed: the broker does not answer")

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Nothing: Faust's check counts on records going through its streams."""


class QuietProducer(driver.Producer):
    """Faust's producer. Topics are created by `streamproc topics apply` alone."""

    async def create_topic(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


class BatchTransport(driver.Transport):
    """The transport of an app whose events go through lanes: those of each topic, and the stores of each changelog."""

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
