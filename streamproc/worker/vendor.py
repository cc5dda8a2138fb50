"""The private parts of Faust and mode that the worker uses, all of them: no other file may touch one.

`tests/worker/test_vendor.py` has a test for each, which names what a new release of them has changed; their versions
are pinned exactly. `kafka/vendor.py` is the same for aiokafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import faust
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition
from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor
from faust.channels import Channel
from faust.tables.table import Table
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service
from mode.utils.futures import maybe_async
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from streamproc.kafka import vendor as kafka
from streamproc.worker.limits import FETCH_WAIT_MS
from streamproc.worker.records import Fetched

POLL_S = 1.0  # the longest wait for records


class SameLoopConsumer(driver.AIOKafkaConsumerThread):
    """Faust's Kafka client without its thread: fetches, seeks and commits run in the loop of the app.

    Faust runs the client in a thread of its own, so that agents which block do not stop heartbeats. Slices are bounded,
    so this client stays in the app's loop: a record does not wait for two threads to wake up, and no callback of a
    rebalance runs beside a step.
    """

    wait_for_shutdown = False

    # As any other service, not as one with a thread.
    maybe_start = Service.maybe_start
    start = Service.start
    stop = Service.stop
    crash = Service.crash  # type: ignore[assignment]  # another name of its argument
    set_shutdown = Service.set_shutdown
    _stopped_set = Service._stopped_set
    _stop_children = Service._stop_children
    _stop_futures = Service._stop_futures
    _stop_exit_stacks = Service._stop_exit_stacks

    async def on_start(self) -> None:
        await super().on_start()
        consumer = self._ensure_consumer()
        kafka.decode_fetches(consumer)
        kafka.read_first(consumer)

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def call_thread(self, fun: Any, *args: Any, **kwargs: Any) -> Any:
        return await maybe_async(fun(*args, **kwargs))

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes 1.5 s. A fetch leaves out a partition whose records are still being processed when it is sent, and
        # the partition's next records wait for the fetch after it.
        kafka.wait_for_fetches(consumer, FETCH_WAIT_MS)
        return consumer

    async def committed_with_metadata(self, tp: TP) -> tuple[int | None, str]:
        return await kafka.committed_metadata(self._ensure_consumer(), TopicPartition(*tp))

    async def _commit(self, offsets: Mapping[TP, tuple[int, str]]) -> bool:  # type: ignore[override]
        """Commit offsets with metadata; return False if that is impossible now. A later commit covers them as well."""
        try:
            await self._ensure_consumer().commit({TopicPartition(*tp): offset for tp, offset in offsets.items()})
        except (CommitFailedError, IllegalStateError) as problem:
            self.log.info("offsets not committed; the group is rebalancing: %s", problem)
            return False
        except KafkaError as problem:
            self.log.warning("offsets not committed; trying again: %r", problem)
            return False
        return True

    @property
    def expelled(self) -> bool:
        """Whether this worker is not a member of the group: it was expelled, or has not joined yet."""
        return not kafka.has_joined(self._consumer)

    def raise_coordination_error(self) -> None:
        """Do as `kafka.vendor` does."""
        kafka.raise_coordination_error(self._consumer)

    def hold(self, tps: set[TP], *, held: bool) -> None:
        """Pause or resume fetching: a fetch that returns unwanted records delays the partitions that share it."""
        consumer = self._ensure_consumer()
        mine = [tp for tp in consumer.assignment() if tp in tps]
        if mine and held:
            consumer.pause(*mine)
        elif mine:
            consumer.resume(*mine)

    async def fetch(self, tps: set[TP], *, wait: bool) -> Mapping[TP, Sequence[Fetched]]:
        """Return records of these partitions; none after `POLL_S` without any, or at once if `wait` is false."""
        return await kafka.take_records(self._ensure_consumer(), tps, POLL_S if wait else 0.0)

    def next_offset(self, tp: TP) -> int | None:
        return kafka.next_offset(self._ensure_consumer(), tp)


class SeekingConsumer(driver.Consumer):
    """Faust's consumer, with names for what it keeps private, and safe for a group that has not committed anything yet.

    Faust drops the records that it fetched during a rebalance or recovery, and seeks to the committed offset to read
    them again. Without a committed offset, or if it is 0, aiokafka does not move.
    """

    drain: Callable[[Callable[[], bool]], Awaitable[None]]  # until a function returns True
    committable: Callable[[], Mapping[TP, int]]
    commit_offsets: Callable[[Mapping[TP, int]], Awaitable[bool]]
    _thread: SameLoopConsumer
    _sought = -1  # the generation of the group whose partitions have been sought
    _waiting: frozenset[TP] = frozenset()

    def _new_consumer_thread(self) -> SameLoopConsumer:
        return SameLoopConsumer(self, loop=self.loop, thread_loop=self.loop, beacon=self.beacon)

    kafka = property(lambda self: cast(SameLoopConsumer, self._thread))
    committed_offsets = property(lambda self: cast("dict[TP, int | None]", self._committed_offset))
    recovery = property(lambda self: cast(Any, self.app.tables.recovery))

    def active_partitions(self) -> set[TP]:
        return set(self._get_active_partitions())

    def changelogs(self, tps: Any) -> set[TP]:
        return {tp for tp in tps if self._is_changelog_tp(tp)}

    def end_recovery(self) -> None:
        self.recovery._set_recovery_ended()
        self.recovery.signal_recovery_end.set()

    # What Faust calls, passed on.

    async def _drain_messages(self, fetcher: Any) -> None:
        await self.drain(lambda: self._stopped.is_set() or fetcher._stopped.is_set())

    def _filter_committable_offsets(self, tps: Any) -> dict[TP, int]:  # noqa: ARG002 (Faust's signature)
        return {tp: offset for tp, offset in self.committable().items() if self._should_commit(tp, offset)}

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:  # noqa: ARG002 (Faust's signature)
        return await self.commit_offsets(offsets)

    async def commit_with_metadata(self, offsets: Mapping[TP, tuple[int, str]]) -> bool:
        return await self._commit(cast(Any, offsets))

    def resume_partitions(self, tps: Any) -> None:
        """Resume reading: the changelog at once, events only after the seek to their committed offset.

        Faust resumes partitions before it seeks. Records read in between would count as done, and the dropped records
        before them would be skipped.
        """
        if self._sought != self.app.consumer_generation_id:
            early = frozenset(tps) - self.changelogs(tps)
            self._waiting |= early
            tps = set(tps) - early
        super().resume_partitions(tps)

    async def perform_seek(self) -> None:
        """Seek all partitions to their committed offset, and only then resume reading them."""
        generation = self.app.consumer_generation_id
        await super().perform_seek()
        waiting, self._waiting = self._waiting, frozenset()
        if generation == self.app.consumer_generation_id:
            self._sought = generation
            super().resume_partitions(set(waiting))

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek all partitions to their committed offset, or to their beginning."""
        offsets = await super().seek_to_committed()
        fresh = {tp for tp, offset in offsets.items() if not offset}
        if fresh := fresh - self.changelogs(fresh):
            # Not `seek_to_beginning`: it waits for a fetch, which waits until earlier records are taken.
            for tp, beginning in (await self.earliest_offsets(*fresh)).items():
                self._thread.seek(tp, beginning)
        return offsets


class HostlessAssignor(PartitionAssignor):
    """Faust's assignor, without its rule that a worker must come back under the same host name.

    Faust puts the address of each worker's web server, which holds its host name, into the group's metadata. A worker
    with a `STREAMPROC_INSTANCE` that returns within the session timeout gets the assignment of its predecessor back
    from the broker, without a rebalance, and so with the predecessor's address. Faust asserts that the address is its
    own. In a new container it is not, and the assertion ends the coordination with the group. We have no web server:
    nothing uses these addresses. They are sent as Faust makes them, so workers with and without this class can share a
    group.
    """

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:  # type: ignore[override]
        metadata = ClientMetadata.loads(self._decompress(assignment.user_data))
        metadata.url = str(self._url)
        user_data = self._compress(metadata.dumps())
        super().on_assignment(
            ConsumerProtocolMemberAssignment(assignment.version, assignment.assignment, user_data)  # type: ignore[arg-type]
        )


class App(faust.App):
    """Faust's app, which keeps nothing on disk and creates no directories."""

    def _create_directories(self) -> None:
        """Do nothing."""

    async def wait_for_crash(self) -> BaseException:
        """Wait until Faust reports that a part of it has crashed; return why."""
        await self._crashed.wait()
        return self.crash_reason or RuntimeError("a part of the worker crashed")


class StoreTable(Table[bytes, bytes]):
    """A table that the pipelines write in batches, not through its mapping, in a store of the type `store_type`."""

    store_type: type[Any]

    def _new_store(self) -> Any:
        return self.store_type("memory://", self.app, self, table_name=self.name, loop=self.loop)


class UnsuspendedChannel(Channel[Any]):
    """An in-memory channel outside Faust's flow control: it passes on what it gets while partitions move, too."""

    @property
    def queue(self) -> ThrowableQueue[Any]:
        """The queue of the agent."""
        if self._queue is None:
            self._queue = ThrowableQueue(flow_control=FlowControlEvent(initially_suspended=False))
        return self._queue
