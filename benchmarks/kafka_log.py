"""The benchmark's topics on a real Kafka: create, fill, read to the end, delete."""

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
BATCH_HEADER = struct.Struct(">8xi45xi")  # format 2: length after the first 12 bytes, number of records


@asynccontextmanager
async def own_topics(settings: Settings) -> AsyncIterator[None]:
    """Create the product's topics under the benchmark's prefix; in the end, delete all topics with this prefix."""
    await topics.apply(settings)
    try:
        yield
    finally:
        await remove(settings, settings.topic_prefix)


async def create(settings: Settings, *names: str) -> None:
    """Create plain topics, with as many partitions as the product's."""
    async with _admin(settings) as admin:
        wanted = [NewTopic(name, settings.partitions, settings.replication_factor) for name in names]
        answer: Any = await admin.create_topics(wanted)
        for _, code, *message in answer.topic_errors:
            if code:
                raise BenchmarkDefect(f"Kafka did not create a topic: {message}")


async def remove(settings: Settings, prefix: str) -> None:
    """Delete every topic whose name begins with `prefix`."""
    async with _admin(settings) as admin:
        names = [name for name in await admin.list_topics() if name.startswith(prefix)]
        if names:
            await admin.delete_topics(names)


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings))
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def fill(settings: Settings, log: FleetLog) -> None:
    """Write the log to the turns topic."""
    await fill_topic(settings, settings.topic("turns"), log.partitions)


async def fill_topic(settings: Settings, topic: str, partitions: list[list[Record]]) -> None:
    """Write records to each partition of a topic, in large uncompressed batches."""
    producer = AIOKafkaProducer(**connection_options(settings), max_batch_size=BATCH_BYTES, enable_idempotence=True)
    await producer.start()
    try:
        await producer.partitions_for(topic)
        await asyncio.gather(*(_put(producer, topic, number, list_) for number, list_ in enumerate(partitions)))
    finally:
        await producer.stop()
    ends = await end_offsets(settings, topic)
    if ends != {number: len(records) for number, records in enumerate(partitions)}:
        raise BenchmarkDefect(f"{topic} was not filled completely: it ends at {ends}")


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
    """Start a consumer that is assigned every partition of some topics and commits nothing."""
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
    """Return the end offset of each partition."""
    async with consumer(settings, topic) as reader:
        return {place.partition: end for place, end in (await reader.end_offsets(list(reader.assignment()))).items()}


async def committed(settings: Settings, topic: str) -> dict[int, int]:
    """Return the committed offset of the worker group for each partition."""
    async with consumer(settings, topic, group=settings.worker_group) as reader:
        return {place.partition: await reader.committed(place) or 0 for place in reader.assignment()}


async def read_all(settings: Settings, topic: str) -> AsyncIterator[list[ConsumerRecord[bytes | None, bytes | None]]]:
    """Yield the records of a topic up to its current end."""
    async with consumer(settings, topic) as reader:
        ends = await reader.end_offsets(list(reader.assignment()))
        while any([await reader.position(place) < end for place, end in ends.items()]):
            for records in (await reader.getmany(timeout_ms=200)).values():
                yield records


@dataclass
class Stored:
    """What the broker stores for some records: the bytes of their compressed batches."""

    batch_bytes: int = 0
    records: int = 0


@contextmanager
def counting() -> Iterator[Stored]:
    """Count what the broker sends to all consumers during a `with` block."""
    stored, unpack = Stored(), fetcher.MemoryRecords

    def counted(raw: bytes) -> Any:
        start = 0
        while start + BATCH_HEADER.size <= len(raw):
            length, records = BATCH_HEADER.unpack_from(raw, start)
            end = start + 12 + length  # the length counts what follows it
            if end > len(raw):
                break  # incomplete; the broker sends it again
            stored.batch_bytes += end - start
            stored.records += records
            start = end
        return unpack(raw)

    fetcher.MemoryRecords = counted
    try:
        yield stored
    finally:
        fetcher.MemoryRecords = unpack
