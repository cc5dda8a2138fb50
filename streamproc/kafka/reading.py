"""Reading a topic once, as far as it reached when reading began, in no consumer group.

Nothing of the live workers' positions is touched, and nothing is committed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from streamproc.errors import AccessDenied, Unavailable
from streamproc.kafka import access, topics
from streamproc.kafka.options import connection_options
from streamproc.settings import Settings

CHUNK_MAX: Final = 2_000  # records handed over at a time
UNSEEN: Final = " (or this user may not see it: `streamproc topics acls`)"
SILENCE_MAX_S: Final = 30.0  # without one record before the broker counts as gone

Record = ConsumerRecord[bytes | None, bytes | None]


class Extent(NamedTuple):
    """The offsets of a partition that are read: from `begin` to before `end`."""

    begin: int
    end: int


class TopicReader:
    """One topic, partition after partition, each in the order of its log."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, extents: dict[int, Extent]) -> None:
        self._consumer = consumer
        self.topic = topic
        self.extents = extents

    @property
    def records_total(self) -> int:
        """How many offsets there are to read; deleted records count, too."""
        return sum(extent.end - extent.begin for extent in self.extents.values())

    async def chunks(self) -> AsyncIterator[list[Record]]:
        """The records, some at a time, all of one partition. Raises `Unavailable` when the broker goes away."""
        for partition, extent in sorted(self.extents.items()):
            async for chunk in self._partition(TopicPartition(self.topic, partition), extent):
                yield chunk

    async def _partition(self, place: TopicPartition, extent: Extent) -> AsyncIterator[list[Record]]:
        if extent.begin >= extent.end:
            return
        self._consumer.assign([place])
        self._consumer.seek(place, extent.begin)
        heard = time.monotonic()
        reached = extent.begin
        while reached < extent.end:
            found = await self._consumer.getmany(place, timeout_ms=1_000, max_records=CHUNK_MAX)
            chunk = [record for record in found.get(place, ()) if record.offset < extent.end]
            if chunk:
                yield chunk
            before, reached = reached, await self._consumer.position(place)
            if reached > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_MAX_S:
                raise Unavailable(
                    f"{self.topic}, partition {place.partition}: nothing came for {SILENCE_MAX_S:g} s "
                    f"at offset {reached} of {extent.end}; is the broker still there?"
                )


@asynccontextmanager
async def open_topic(settings: Settings, name: str) -> AsyncIterator[TopicReader]:
    """A reader of the topic of this name, such as ``turns``. Raises `Unavailable`."""
    topic = settings.topic(name)
    count = await partitions_of(settings, name)
    async with connected(settings) as consumer:
        places = [TopicPartition(topic, partition) for partition in range(count)]
        begins = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        extents = {place.partition: Extent(begins[place], ends[place]) for place in places}
        yield TopicReader(consumer, topic, extents)


@asynccontextmanager
async def connected(settings: Settings, group: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer without a subscription. Raises `Unavailable` where no broker answers."""
    consumer = AIOKafkaConsumer(
        **connection_options(settings), group_id=group, enable_auto_commit=False, max_partition_fetch_bytes=4 << 20
    )
    try:
        await access.start(consumer, settings)
    except AccessDenied:
        await consumer.stop()
        raise
    except (KafkaError, OSError) as error:
        await consumer.stop()
        raise Unavailable(
            f"no Kafka broker answers at {settings.brokers} ({error}). "
            "Start one, or name it with --brokers or STREAMPROC_BROKERS; `streamproc doctor` looks closer"
        ) from None
    try:
        yield consumer
    except KafkaError as error:
        denied = access.not_allowed(settings, error)
        if denied is None:
            raise
        raise denied from error
    finally:
        await consumer.stop()


async def partitions_of(settings: Settings, name: str) -> int:
    """How many partitions a topic has. Raises `Unavailable` where no broker answers, or the topic does not exist."""
    topic = settings.topic(name)
    found = await topics.partitions(settings)
    if topic not in found:
        raise Unavailable(f"topic {topic} does not exist; make it with `streamproc topics apply`{UNSEEN}")
    return found[topic]


async def committed_offsets(settings: Settings, topic: str, partitions: list[int]) -> dict[int, int]:
    """How far the workers have confirmed each partition; 0 where they have not begun."""
    async with connected(settings, settings.worker_group) as consumer:
        places = [TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(places)
        return {place.partition: await consumer.committed(place) or 0 for place in places}
