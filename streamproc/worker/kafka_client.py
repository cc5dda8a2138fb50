"""Faust's Kafka client without its thread: fetches, seeks and commits run in the loop of the app.

Faust runs the client in a thread of its own, so that agents which block do not stop heartbeats. Slices are bounded, so
this client stays in the app's loop: a record does not wait for two threads to wake up, and no callback of a rebalance
runs beside a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service
from mode.utils.futures import maybe_async

from streamproc.kafka.fetch_response import decode_fetches
from streamproc.kafka.reader_first import read_first
from streamproc.worker.limits import FETCH_WAIT_MS
from streamproc.worker.records import Fetched, take_fetched

POLL_S = 1.0  # the longest wait for records


class SameLoopConsumer(driver.AIOKafkaConsumerThread):
    """Faust's "consumer thread", without a thread: its calls run where they are made."""

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
        decode_fetches(consumer)
        read_first(consumer)

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def call_thread(self, fun: Any, *args: Any, **kwargs: Any) -> Any:
        return await maybe_async(fun(*args, **kwargs))

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes 1.5 s. A fetch leaves out a partition whose records are still being processed when it is sent, and
        # the partition's next records wait for the fetch after it.
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def committed_with_metadata(self, tp: TP) -> tuple[int | None, str]:
        """Return the committed offset of a partition (None: there is none yet) and its metadata."""
        consumer: Any = self._ensure_consumer()
        place = TopicPartition(*tp)
        found = (await consumer._coordinator.fetch_committed_offsets([place])).get(place)
        return (None, "") if found is None or found.offset < 0 else (int(found.offset), str(found.metadata or ""))

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
        consumer: Any = self._consumer
        coordinator = consumer._coordinator if consumer is not None else None
        return coordinator is None or bool(coordinator.generation == driver.DEFAULT_GENERATION_ID)

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
        consumer = self._ensure_consumer()
        fetcher: Any = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        if fetcher._fetch_task.done():
            # After an error that it does not expect, aiokafka never fetches again. A restart fixes that at once.
            raise KafkaError("aiokafka fetches no more") from fetcher._fetch_task.exception()
        with fetcher._subscriptions.fetch_context():
            return await take_fetched(fetcher, tps, POLL_S if wait else 0.0)

    def next_offset(self, tp: TP) -> int | None:
        """Return the offset of the next record to fetch; None while it is unknown."""
        assignment = self._ensure_consumer()._subscription.subscription.assignment
        state = assignment.state_value(tp) if assignment is not None else None
        return state._position if state is not None else None
