"""From the outbox to Kafka: one connection, one task a partition, nothing lost by a broker that comes back.

A lane sends one batch at a time and takes whatever has gathered meanwhile as the next one, so batches grow with
the load and an event never lingers. What the broker did not acknowledge waits again, in order; the engine knows
repeats by their event id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.partitioner import murmur2

from streamproc.errors import Unavailable
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.session import (
    CONNECT_TIMEOUT_S,
    EXPECTED,
    REQUEST_TIMEOUT_MS,
    Backoff,
    as_unavailable,
    contained,
    partitions_of,
    probe,
    run_until_one_ends,
)

if TYPE_CHECKING:
    from streamproc.client.outbox import Item, Outbox, PartitionQueue
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 262_144  # of one request and partition: a quarter of what brokers accept by default
ACKNOWLEDGED_WITHIN_S: Final = 30.0  # then we connect anew, from the bootstrap servers: brokers may have moved
RUN_EVENTS_MAX: Final = 20  # of one run in a batch: a batch that is sent twice must be known by the ids that a run
# remembers (core.run.IDS_MAX), or its turns would look like a loop
ABANDON_TIMEOUT_S: Final = 0.5
REFUSED: Final = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidTimestampError)  # trying again is no use

_hash_of_key = lru_cache(maxsize=16_384)(murmur2)  # aiokafka's is pure Python: 5 µs for a UUID


class Delivery:
    """Sends what the outbox holds, for as long as `run` runs. `settled` is told how many events the broker took,
    and how many it refused for good."""

    def __init__(self, settings: Settings, outbox: Outbox, settled: Callable[[int, int], None]) -> None:
        self._settings = settings
        self._topic = settings.topic("turns")
        self._outbox = outbox
        self._settled = settled
        self._wakers: list[asyncio.Event] = []
        self._most: dict[int, int] = {}  # how many events the next batch of a partition may have, after a refusal
        self.trouble: Unavailable | None = None
        """Why nothing is being delivered; None while the connection is well."""

    def wake(self, lane: int) -> None:
        """Something waits in this lane."""
        if self._wakers:
            self._wakers[lane].set()

    async def run(self) -> None:
        """Connect, deliver, connect again: until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await contained(self._session(backoff))
            except _Renewed:
                continue
            except Exception as error:  # noqa: BLE001  # whatever it is: the publisher goes on, and tells
                self._report(error)
            await asyncio.sleep(backoff.next_s())

    async def _session(self, backoff: Backoff) -> None:
        producer = AIOKafkaProducer(
            **connection_options(self._settings),
            acks="all",
            enable_idempotence=True,
            compression_type=None,  # fingerprints are 250 bytes, mostly one a request: lz4 makes those larger, and
            max_batch_size=BATCH_BYTES,  # costs 0.1 ms; a topic's own compression.type works for stored batches
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await access.start(producer, self._settings)
                found = await partitions_of(producer.client, self._settings, "turns")
                await producer.partitions_for(self._topic)
            count = len(found[self._topic])
            self._outbox.spread(count, lambda key: (_hash_of_key(key) & 0x7FFFFFFF) % count)
            self._wakers = [asyncio.Event() for _ in range(count)]
            lanes = enumerate(self._outbox.lanes)
            serving = (self._serve(producer, backoff, number, lane) for number, lane in lanes)
            await run_until_one_ends(probe(producer.client), *serving)
        finally:
            self._wakers = []
            for lane in self._outbox.lanes:
                lane.return_sending()
            await _abandon(producer)

    async def _serve(self, producer: AIOKafkaProducer, backoff: Backoff, number: int, lane: PartitionQueue) -> None:
        waker = self._wakers[number]
        while True:
            while items := self._outbox.take(lane, BATCH_BYTES):
                try:
                    sent = await self._send(producer, number, items[: self._most.pop(number, None)])
                except _Refused as refused:
                    self._refuse(number, lane, refused)
                    raise _Renewed from refused
                self._well(backoff)
                self._outbox.settle(lane, sent)
                self._settled(sent, 0)
            waker.clear()
            await waker.wait()

    async def _send(self, producer: AIOKafkaProducer, partition: int, items: list[Item]) -> int:
        """Send the first items, as many as one batch takes. Returns how many."""
        batch = producer.create_batch()
        of_run: Counter[bytes] = Counter()
        count = 0
        while count < len(items) and of_run[items[count].key] < RUN_EVENTS_MAX and _append(batch, items[count]):
            of_run[items[count].key] += 1
            count += 1
        try:
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
                await (await producer.send_batch(batch, self._topic, partition=partition))
        except REFUSED as error:
            raise _Refused(count, error) from error
        return count

    def _refuse(self, number: int, lane: PartitionQueue, refused: _Refused) -> None:
        """Find out which event is to blame, by halving the batch, and drop it."""
        if refused.count > 1:
            self._most[number] = refused.count // 2
            return
        log.warning("the broker refuses an event of %d bytes: %s", lane.sending[0].size, refused.error)
        self._outbox.settle(lane, 1)
        self._settled(0, 1)

    def _report(self, error: Exception) -> None:
        if not isinstance(error, EXPECTED):
            log.error("unexpected while delivering turns; trying again", exc_info=error)
        problem = as_unavailable(self._settings, error)
        if self.trouble is None:
            log.warning("turns are kept back: %s", problem)
        self.trouble = problem

    def _well(self, backoff: Backoff) -> None:
        backoff.reset()
        if self.trouble is not None:
            log.warning("turns are delivered again (%d waited)", self._outbox.events)
            self.trouble = None


class _Refused(Exception):
    """The broker will never take this batch of `count` events."""

    def __init__(self, count: int, error: Exception) -> None:
        self.count = count
        self.error = error


class _Renewed(Exception):
    """A new producer is needed: after a refused batch an idempotent one has lost its count."""


def _append(batch: Any, item: Item) -> bool:
    return batch.append(key=item.key, value=item.value, timestamp=item.at_ms) is not None


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Close at once. `AIOKafkaProducer.stop` waits until all is acknowledged: with a broker away, for ever."""
    producer._closed = True
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    with contextlib.suppress(Exception):  # it is given up; what it still has to say is no news
        await contained(producer.client.close(), ABANDON_TIMEOUT_S)
    while sender is not None and not sender.done():
        await asyncio.wait([sender], timeout=ABANDON_TIMEOUT_S)
        sender.cancel()  # it may wait for requests that nobody answers any more
