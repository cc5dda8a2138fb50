"""A reader of one topic: its records, partition after partition, up to the ends that it was opened with."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from streamproc.errors import Unavailable
from streamproc.kafka.partitioning import EVERYWHERE, Home, find_strays

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
