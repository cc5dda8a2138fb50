"""Reads a topic once, up to the end offsets seen when reading begins, without a consumer group.

It commits nothing and does not affect the positions of the live workers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from streamproc.errors import Unavailable
from streamproc.kafka import access, topics
from streamproc.kafka.fetch_response import decode_fetches
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import EVERYWHERE, Home, find_strays, home_of
from streamproc.kafka.reachability import why_unreachable
from streamproc.settings import Settings

BATCH_RECORDS_MAX: Final = 2_000
SAMPLE: Final = 2_000  # records from which it is concluded why some are not at home
SILENCE_MAX_S: Final = 30.0  # without one record before the broker counts as gone

Record = ConsumerRecord[bytes | None, bytes | None]

LOG_APPEND_TIME: Final = 1  # the timestamp type of a record that has the broker's time
AT_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, the last that a calendar date can have


def append_time_ms(record: Any) -> int | None:
    """Return the broker's time of a record; None if it has the time that its sender chose."""
    return int(record.timestamp) if record.timestamp_type == LOG_APPEND_TIME else None


def log_time(record: Any) -> int | None:
    """Return the log time of a record; None if it is not a valid time."""
    at_ms: int | None = record.timestamp
    return at_ms if at_ms is not None and 0 <= at_ms <= AT_MS_MAX else None


class Extent(NamedTuple):
    """The offsets of a partition to read: from `begin` up to, but not including, `end`."""

    begin: int
    end: int


class TopicReader:
    """Reads one topic, partition after partition, each in log order."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        extents: dict[int, Extent],
        batch_max: int = BATCH_RECORDS_MAX,
        home: Home = EVERYWHERE,
    ) -> None:
        self._consumer = consumer
        self.topic = topic
        self.home = home
        """Records outside of their home are passed over, as workers do, and counted in `strays`."""
        self.strays = 0
        self._sample: list[tuple[bytes, int]] = []
        self.extents = extents
        self._batch_max = batch_max

    @property
    def records_total(self) -> int:
        """Number of offsets to read; deleted records count too."""
        return sum(extent.end - extent.begin for extent in self.extents.values())

    async def batches(self) -> AsyncIterator[list[Record]]:
        """Yield the records in batches, each from one partition. Raises `Unavailable` when the broker goes away."""
        for partition, extent in sorted(self.extents.items()):
            async for batch in self._read_partition(TopicPartition(self.topic, partition), extent):
                if kept := self._at_home(batch) if self.home.checked else batch:
                    yield kept

    def why_strays(self) -> str:
        """Return why records were passed over, in a sentence; empty if none was."""
        return find_strays(self.home, self._sample).cause(self.home) if self.strays else ""

    def _at_home(self, batch: list[Record]) -> list[Record]:
        kept = [record for record in batch if self.home.holds(record.key, record.partition)]
        self.strays += len(batch) - len(kept)
        if self.strays and len(self._sample) < SAMPLE:
            self._sample += [(record.key, record.partition) for record in batch[:SAMPLE] if record.key is not None]
        return kept

    async def _read_partition(self, partition: TopicPartition, extent: Extent) -> AsyncIterator[list[Record]]:
        if extent.begin >= extent.end:
            return
        self._consumer.assign([partition])
        self._consumer.seek(partition, extent.begin)
        advanced_at = time.monotonic()
        position = extent.begin
        while position < extent.end:
            found = await self._consumer.getmany(partition, timeout_ms=1_000, max_records=self._batch_max)
            batch = [record for record in found.get(partition, ()) if record.offset < extent.end]
            if batch:
                yield batch
            before, position = position, await self._consumer.position(partition)
            if position > before:
                advanced_at = time.monotonic()
            elif time.monotonic() - advanced_at > SILENCE_MAX_S:
                raise Unavailable(
                    f"{self.topic}, partition {partition.partition}: no record for {SILENCE_MAX_S:g} s at offset "
                    f"{position} of {extent.end}: check that the broker is running"
                )


@asynccontextmanager
async def open_topic(settings: Settings, name: str) -> AsyncIterator[TopicReader]:
    """Open a reader of a topic by its short name, such as ``turns``. Raises `Unavailable`."""
    if settings.local is not None:
        from streamproc.kafka.local_log import open_local  # it needs this module

        with open_local(settings, settings.local, name) as reader:
            yield reader
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


async def _start(consumer: AIOKafkaConsumer, settings: Settings) -> None:
    try:
        await access.start(consumer, settings)
    except (KafkaError, OSError):
        raise Unavailable(str(await why_unreachable(settings.brokers))) from None


async def partition_count(settings: Settings, name: str) -> int:
    """Return the number of partitions of a topic. Raises `Unavailable` if the broker or the topic is missing."""
    if settings.local is not None:
        return 1
    topic = settings.topic(name)
    found = await topics.partitions(settings)
    if topic not in found:
        hidden = await topics.denied(settings, topic)
        raise hidden or Unavailable(f"topic {topic} does not exist: create it with `streamproc topics apply`")
    return found[topic]


async def committed_offsets(settings: Settings, topic: str, partitions: list[int]) -> dict[int, int]:
    """Return the offset that the workers have committed for each partition; 0 if they have committed none."""
    if settings.local is not None:
        async with open_topic(settings, "turns") as reader:  # an event and its decisions are written together
            return {number: extent.end for number, extent in reader.extents.items()}
    async with open_consumer(settings, settings.worker_group) as consumer:
        assigned = [TopicPartition(topic, number) for number in partitions]
        consumer.assign(assigned)
        return {one.partition: await consumer.committed(one) or 0 for one in assigned}
