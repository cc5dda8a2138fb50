"""The benchmark's own topics on a real Kafka: made, filled, read to their end, and removed again."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.consumer import fetcher

from benchmarks.fleet_log import FleetLog, Record
from benchmarks.table import BenchmarkDefect
from streamproc.kafka import topics
from streamproc.kafka.options import connection_options
from streamproc.settings import Settings

BATCH_BYTES = 262_144
BATCH_HEADER = struct.Struct(">8xi45xi")  # of version 2: the length after the first 12 bytes, the number of records


@asynccontextmanager
async def own_topics(settings: Settings) -> AsyncIterator[None]:
    """The product's topics under the benchmark's prefix, and whatever else is made under it, until the end."""
    await topics.apply(settings)
    try:
        yield
    finally:
        await remove(settings, settings.topic_prefix)


async def make(settings: Settings, *names: str) -> None:
    """Plain topics, with as many partitions as the product's."""
    async with _admin(settings) as admin:
        wanted = [NewTopic(name, settings.partitions, settings.replication_factor) for name in names]
        answer: Any = await admin.create_topics(wanted)
        for _, code, *message in answer.topic_errors:
            if code:
                raise BenchmarkDefect(f"Kafka does not make a topic: {message}")


async def remove(settings: Settings, prefix: str) -> None:
    """Delete every topic whose name begins so."""
    async with _admin(settings) as admin:
        mine = [name for name in await admin.list_topics() if name.startswith(prefix)]
        if mine:
            await admin.delete_topics(mine)


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings))
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def fill(settings: Settings, log: FleetLog) -> None:
    """Put the log on the turns topic."""
    await fill_topic(settings, settings.topic("turns"), log.partitions)


async def fill_topic(settings: Settings, topic: str, partitions: list[list[Record]]) -> None:
    """Put records into each partition of a topic, as large batches without compression."""
    producer = AIOKafkaProducer(**connection_options(settings), max_batch_size=BATCH_BYTES, enable_idempotence=True)
    await producer.start()
    try:
        await producer.partitions_for(topic)
        await asyncio.gather(*(_put(producer, topic, number, list_) for number, list_ in enumerate(partitions)))
    finally:
        await producer.stop()
    ends = await end_offsets(settings, topic)
    if ends != {number: len(records) for number, records in enumerate(partitions)}:
        raise BenchmarkDefect(f"{topic} was not filled: it ends at {ends}")


async def _put(producer: AIOKafkaProducer, topic: str, partition: int, records: list[Record]) -> None:
    sent = []
    batch = producer.create_batch()
    for record in records:
        if batch.append(key=record.key, value=record.value, timestamp=record.at_ms) is None:
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=record.key, value=record.value, timestamp=record.at_ms)
    sent.append(await producer.send_batch(batch, topic, partition=partition))
    await asyncio.gather(*sent)


@asynccontextmanager
async def consumer(settings: Settings, *names: str, group: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that is assigned every partition of some topics; it commits nothing."""
    made = AIOKafkaConsumer(
        **connection_options(settings), group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 << 20,
    )  # fmt: skip
    await made.start()
    try:
        made.assign([TopicPartition(name, number) for name in names for number in range(settings.partitions)])
        yield made
    finally:
        await made.stop()


async def end_offsets(settings: Settings, topic: str) -> dict[int, int]:
    """Where each partition ends."""
    async with consumer(settings, topic) as reader:
        return {place.partition: end for place, end in (await reader.end_offsets(list(reader.assignment()))).items()}


async def committed(settings: Settings, topic: str) -> dict[int, int]:
    """How far the settings' worker group has committed each partition."""
    async with consumer(settings, topic, group=settings.worker_group) as reader:
        return {place.partition: await reader.committed(place) or 0 for place in reader.assignment()}


async def read_all(settings: Settings, topic: str) -> AsyncIterator[list[ConsumerRecord[bytes | None, bytes | None]]]:
    """A topic as far as it reaches now."""
    async with consumer(settings, topic) as reader:
        ends = await reader.end_offsets(list(reader.assignment()))
        while any([await reader.position(place) < end for place, end in ends.items()]):
            for records in (await reader.getmany(timeout_ms=200)).values():
                yield records


@dataclass
class Stored:
    """What the broker keeps of some records: all bytes of their batches, compressed as they are."""

    batch_bytes: int = 0
    records: int = 0


@contextmanager
def counting() -> Iterator[Stored]:
    """Counts what all consumers are sent by the broker, for a while."""
    stored, unpack = Stored(), fetcher.MemoryRecords

    def counted(raw: bytes) -> Any:
        start = 0
        while start + BATCH_HEADER.size <= len(raw):
            length, records = BATCH_HEADER.unpack_from(raw, start)
            end = start + 12 + length  # of what follows the length
            if end > len(raw):
                break  # cut off; it will be sent again
            stored.batch_bytes += end - start
            stored.records += records
            start = end
        return unpack(raw)

    fetcher.MemoryRecords = counted
    try:
        yield stored
    finally:
        fetcher.MemoryRecords = unpack
