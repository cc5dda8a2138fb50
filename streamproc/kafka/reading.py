"""Reads a topic once, up to the end offsets seen when reading begins, without a consumer group: from Kafka, or from the
log of `streamproc up`.

It commits nothing and does not affect the positions of the live workers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streamproc.errors import Unavailable
from streamproc.kafka import access, topics
from streamproc.kafka.local_log import open_local
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import EVERYWHERE, home_of
from streamproc.kafka.reachability import why_unreachable
from streamproc.kafka.topic_reader import (
    BATCH_RECORDS_MAX as BATCH_RECORDS_MAX,
    LOG_APPEND_TIME as LOG_APPEND_TIME,
    Extent as Extent,
    Record as Record,
    TopicReader as TopicReader,
    append_time_ms as append_time_ms,
    log_time as log_time,
)
from streamproc.kafka.vendor import decode_fetches
from streamproc.model.addresses import local_log
from streamproc.settings import Settings


@asynccontextmanager
async def open_topic(settings: Settings, name: str) -> AsyncIterator[TopicReader]:
    """Open a reader of a topic by its short name, such as ``turns``. Raises `Unavailable`."""
    if (path := local_log(settings.brokers)) is not None:
        with open_local(settings, path, name) as local:
            yield local
        return
    topic = settings.topic(name)
    count = await partition_count(settings, name)
    async with open_consumer(settings) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(count)]
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        extents = {one.partition: Extent(begins[one], ends[one]) for one in partitions}
        home = home_of(settings, settings.earlier_partitions or count) if name == "turns" else EVERYWHERE
        yield TopicReader(consumer, topic, extents, home=home)


@asynccontextmanager
async def open_consumer(settings: Settings, group: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a consumer without a subscription. Raises `Unavailable` if no broker answers."""
    consumer = AIOKafkaConsumer(
        **connection_options(settings), group_id=group, enable_auto_commit=False, max_partition_fetch_bytes=4 << 20
    )
    try:
        await _start(consumer, settings)
        decode_fetches(consumer)
        yield consumer
    except KafkaError as error:
        denied = access.as_access_denied(settings, error)
        if denied is None:
            raise
        raise denied from error
    finally:
        await consumer.stop()


async def offsets_at(
    consumer: AIOKafkaConsumer, places: Sequence[TopicPartition], at_ms: int
) -> dict[TopicPartition, int]:
    """Return where to read each partition from to get all records of a time and after it, in epoch ms.

    The ends are asked for first: a record that arrives in between is read, too.
    """
    ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
    found = await consumer.offsets_for_times(dict.fromkeys(places, at_ms))
    return {place: at.offset if (at := found.get(place)) is not None else ends[place] for place in places}


async def _start(consumer: AIOKafkaConsumer, settings: Settings) -> None:
    try:
        await access.start(consumer, settings)
    except (KafkaError, OSError):
        raise Unavailable(str(await why_unreachable(settings.brokers))) from None


async def partition_count(settings: Settings, name: str) -> int:
    """Return the number of partitions of a topic. Raises `Unavailable` if the broker or the topic is missing."""
    if local_log(settings.brokers) is not None:
        return 1
    topic = settings.topic(name)
    found = await topics.partitions(settings)
    if topic not in found:
        hidden = await topics.denied(settings, topic)
        raise hidden or Unavailable(f"topic {topic} does not exist: create it with `streamproc topics apply`")
    return found[topic]


async def committed_offsets(settings: Settings, topic: str, partitions: list[int]) -> dict[int, int]:
    """Return the offset that the workers have committed for each partition; 0 if they have committed none."""
    if local_log(settings.brokers) is not None:
        async with open_topic(settings, "turns") as reader:  # an event and its decisions are written together
            return {number: extent.end for number, extent in reader.extents.items()}
    async with open_consumer(settings, settings.worker_group) as consumer:
        assigned = [TopicPartition(topic, number) for number in partitions]
        consumer.assign(assigned)
        return {one.partition: await consumer.committed(one) or 0 for one in assigned}
