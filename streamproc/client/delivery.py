"""From the outbox to Kafka: one connection, one task a partition, nothing lost by a broker that comes back.

A lane sends one batch at a time and takes whatever has gathered meanwhile as the next one, so batches grow with
the load and an event never lingers. What the broker did not acknowledge waits again, in order; the engine knows
repeats by their event id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.partitioner import murmur2

from streamproc.client.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_MS, Backoff, partitions_of
from streamproc.errors import Unavailable
from streamproc.topics import unavailable

if TYPE_CHECKING:
    from streamproc.client.outbox import Item, Lane, Outbox
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 262_144  # of one request and partition: a quarter of what brokers accept by default
ACKNOWLEDGED_WITHIN_S: Final = 30.0  # then we connect anew, from the bootstrap servers: brokers may have moved
ABANDON_TIMEOUT_S: Final = 0.5
EXPECTED: Final = (KafkaError, OSError, TimeoutError, Unavailable)
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
        self.trouble: Exception | None = None
        """Why nothing is being delivered; None while the connection is well."""

    def wake(self, lane: int) -> None:
        """Something waits in this lane."""
        if self._wakers:
            self._wakers[lane].set()

    async def run(self) -> None:
        """Connect, deliver, connect again: until cancelled."""
        backoff = Backoff()
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # a cancellation that meets an error is swallowed by the TaskGroup
            try:
                await self._session(backoff)
            except* Exception as group:  # noqa: BLE001  # whatever it is: the publisher goes on, and tells
                self._report(_first(group))
            await asyncio.sleep(backoff.next_s())

    async def _session(self, backoff: Backoff) -> None:
        producer = AIOKafkaProducer(
            **self._settings.kafka(),
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await producer.start()
                found = await partitions_of(producer.client, self._settings, "turns")
                await producer.partitions_for(self._topic)
            count = len(found[self._topic])
            self._outbox.spread(count, lambda key: (_hash_of_key(key) & 0x7FFFFFFF) % count)
            self._wakers = [asyncio.Event() for _ in range(count)]
            async with asyncio.TaskGroup() as group:
                for number, lane in enumerate(self._outbox.lanes):
                    group.create_task(self._serve(producer, backoff, number, lane))
        finally:
            self._wakers = []
            for lane in self._outbox.lanes:
                lane.return_sending()
            await _abandon(producer)

    async def _serve(self, producer: AIOKafkaProducer, backoff: Backoff, number: int, lane: Lane) -> None:
        waker = self._wakers[number]
        while True:
            while items := self._outbox.take(lane, BATCH_BYTES):
                sent, refused = await self._send(producer, number, items)
                self._well(backoff)
                self._outbox.settle(lane, sent + refused)
                self._settled(sent, refused)
            waker.clear()
            await waker.wait()

    async def _send(self, producer: AIOKafkaProducer, partition: int, items: list[Item]) -> tuple[int, int]:
        """Send the first items, as many as one batch takes. Returns how many the broker has taken, and how many
        it will never take."""
        batch = producer.create_batch()
        count = 0
        while count < len(items) and _append(batch, items[count]):
            count += 1
        try:
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
                await (await producer.send_batch(batch, self._topic, partition=partition))
        except REFUSED as error:
            if count > 1:  # one of them is to blame: find out which, from the first on
                return await self._send(producer, partition, items[: count // 2])
            log.warning("the broker refuses an event of %d bytes: %s", items[0].size, error)
            return 0, 1
        return count, 0

    def _report(self, error: Exception) -> None:
        if self.trouble is None:
            log.warning("turns are kept back: %s", _told(self._settings, error))
        if not isinstance(error, EXPECTED):
            log.error("unexpected while delivering turns; trying again", exc_info=error)
        self.trouble = error

    def _well(self, backoff: Backoff) -> None:
        backoff.reset()
        if self.trouble is not None:
            log.warning("turns are delivered again (%d waited)", self._outbox.events)
            self.trouble = None


def _append(batch: Any, item: Item) -> bool:
    return batch.append(key=item.key, value=item.value, timestamp=item.at_ms) is not None


def _first(group: BaseExceptionGroup[Any]) -> Exception:
    error: Any = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error


def _told(settings: Settings, error: Exception) -> Exception:
    return error if isinstance(error, Unavailable) else unavailable(settings, error)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Close at once. `AIOKafkaProducer.stop` waits until all is acknowledged: with a broker away, for ever."""
    producer._closed = True
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    with contextlib.suppress(KafkaError, OSError):
        await producer.client.close()
    while sender is not None and not sender.done():
        await asyncio.wait([sender], timeout=ABANDON_TIMEOUT_S)
        sender.cancel()  # it may wait for requests that nobody answers any more
