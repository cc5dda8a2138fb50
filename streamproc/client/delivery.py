"""Delivers the outbox to Kafka: one connection, one task per partition, and no event lost when a broker comes back.

A partition sends one batch at a time; events that arrive meanwhile form the next batch. So batches grow with the load
and no event lingers. Events that the broker did not acknowledge are sent again, in order; the engine recognises
duplicates by event id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError, RecordListTooLargeError

from streamproc.client.encoding import Encoded
from streamproc.client.outbox import Outbox, PartitionQueue
from streamproc.errors import Unavailable
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import home_of
from streamproc.kafka.session import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_MS,
    Backoff,
    Outage,
    Reconnect,
    as_unavailable,
    find_partitions,
    probe_brokers,
    reconnecting,
    run_in_own_task,
    run_until_one_ends,
)
from streamproc.kafka.vendor import end_at_once
from streamproc.model.wire import PUBLISHER_HEADER
from streamproc.settings import Settings
from streamproc.tracing.trace_context import TURN_HEADER

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 262_144  # of one request and partition: a quarter of what brokers accept by default
ACKNOWLEDGED_WITHIN_S: Final = 30.0  # then reconnect, from the bootstrap servers: brokers may have moved
RUN_EVENTS_MAX: Final = 20  # of one run in a batch: fewer than the event ids that a run remembers
# (core.run_state.IDS_MAX), or the turns of a batch that is sent twice would look like a loop
ABANDON_TIMEOUT_S: Final = 0.5
REFUSED: Final = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidTimestampError)  # a retry cannot succeed


class Delivery:
    """Sends the events of the outbox for as long as `run` runs.

    `settled` receives the number of events that the broker acknowledged, and of those that it refused for good.
    """

    def __init__(self, settings: Settings, outbox: Outbox, settled: Callable[[int, int], None]) -> None:
        self._settings = settings
        self._topic = settings.topic("turns")
        self._headers = [(PUBLISHER_HEADER, settings.publisher.encode())]
        self._outbox = outbox
        self._settled = settled
        self._wakers: list[asyncio.Event] = []
        self._batch_max: dict[int, int] = {}  # by partition, after a refusal: the size of its next batch
        self._outage = Outage(
            log, "delivering turns", "turns are not being delivered, and are buffered", "turns are delivered again"
        )

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being delivered; None while the connection works."""
        return self._outage.trouble

    def wake(self, partition: int) -> None:
        """Send from this partition's queue now."""
        if self._wakers:
            self._wakers[partition].set()

    async def run(self) -> None:
        """Connect, deliver and reconnect until cancelled."""
        await reconnecting(self._session, self._report, purpose=self._outage.purpose)

    async def _session(self, backoff: Backoff) -> None:
        producer = AIOKafkaProducer(
            **connection_options(self._settings),
            client_id=self._settings.client_id,
            acks="all",
            enable_idempotence=True,
            compression_type=None,  # fingerprints are 250 bytes, mostly one per request: lz4 enlarges those and
            max_batch_size=BATCH_BYTES,  # costs 0.1 ms; a topic's own compression.type applies to stored batches
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await access.start(producer, self._settings)
                found = await find_partitions(producer.client, self._settings, [self._topic])
                await producer.client.add_topic(self._topic)  # a client that tracks no topic asks for all of them
                await producer.partitions_for(self._topic)
            count = len(found[self._topic])
            self._outbox.repartition(count, lru_cache(maxsize=16_384)(home_of(self._settings, count).of))
            self._wakers = [asyncio.Event() for _ in range(count)]
            queues = enumerate(self._outbox.queues)
            senders = (self._send_queue(producer, backoff, number, queue) for number, queue in queues)
            await run_until_one_ends(probe_brokers(producer.client), *senders)
        finally:
            self._wakers = []
            for queue in self._outbox.queues:
                queue.return_sending()
            await _abandon(producer)

    async def _send_queue(
        self, producer: AIOKafkaProducer, backoff: Backoff, partition: int, queue: PartitionQueue
    ) -> None:
        waker = self._wakers[partition]
        while True:
            while items := self._outbox.start_sending(queue, BATCH_BYTES):
                try:
                    sent = await self._send(producer, partition, items[: self._batch_max.pop(partition, None)])
                except _Refused as refused:
                    self._handle_refusal(partition, queue, refused)
                    raise Reconnect from refused  # an idempotent producer has lost its sequence after a refusal
                self._report_success(backoff)
                self._outbox.remove_sent(queue, sent)
                self._settled(sent, 0)
            waker.clear()
            await waker.wait()

    async def _send(self, producer: AIOKafkaProducer, partition: int, items: list[Encoded]) -> int:
        """Send as many of the first items as fit into one batch. Returns how many."""
        batch = producer.create_batch()
        of_run: Counter[bytes] = Counter()
        count = 0
        while count < len(items) and of_run[items[count].key] < RUN_EVENTS_MAX and self._append(batch, items[count]):
            of_run[items[count].key] += 1
            count += 1
        try:
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
                await (await producer.send_batch(batch, self._topic, partition=partition))
        except REFUSED as error:
            raise _Refused(count, error) from error
        return count

    def _append(self, batch: Any, item: Encoded) -> bool:
        headers = [*self._headers, *item.headers] if item.headers else self._headers
        if item.traceparent:
            headers = [*headers, (TURN_HEADER, item.traceparent.encode())]
        added = batch.append(key=item.key, value=item.value, timestamp=item.at_ms, headers=headers)
        return added is not None

    def _handle_refusal(self, partition: int, queue: PartitionQueue, refused: _Refused) -> None:
        """Halve the batch until one event is left, which is the refused one, and drop it."""
        if refused.count > 1:
            self._batch_max[partition] = refused.count // 2
            return
        log.warning("the broker refused an event of %d bytes; dropped it: %s", queue.sending[0].size, refused.error)
        self._outbox.remove_sent(queue, 1)
        self._settled(0, 1)

    def _report(self, error: Exception) -> None:
        self._outage.lost(as_unavailable(self._settings, error))

    def _report_success(self, backoff: Backoff) -> None:
        backoff.reset()
        self._outage.over(f" ({self._outbox.events} were waiting)")


class _Refused(Exception):
    """The broker will never accept this batch of `count` events."""

    def __init__(self, count: int, error: Exception) -> None:
        self.count = count
        self.error = error


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Close at once. `AIOKafkaProducer.stop` waits until everything is acknowledged: without a broker, for ever."""
    sender = end_at_once(producer)
    with contextlib.suppress(Exception):  # this producer is abandoned: its errors do not matter
        await run_in_own_task(producer.client.close(), ABANDON_TIMEOUT_S)
    while sender is not None and not sender.done():
        await asyncio.wait([sender], timeout=ABANDON_TIMEOUT_S)
        sender.cancel()  # it may be waiting for requests that will never be answered
