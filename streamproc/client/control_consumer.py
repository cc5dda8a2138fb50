"""The listener's ear: reads `commands` and `runs` from their beginnings to their ends, then them and `control` live.

There is no consumer group: every listener reads every partition and commits nothing. After a broken connection it
goes on where it stopped; where that place is gone, it reads `runs` from the beginning again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from streamproc.client.halts import ControlNews, StatusNews, read_control_news, read_status_news
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
    from collections.abc import Callable, Iterable

    from aiokafka import ConsumerRecord

    from streamproc.settings import Settings

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 2_000  # taken at once, so that the event loop is held for a few ms at most
READ_TIMEOUT_S: Final = 20.0
WATCH_EVERY_S: Final = 15.0
CLOSE_TIMEOUT_S: Final = 2.0
SKIPPED_SHOWN_EVERY: Final = 1000


class Handler(Protocol):
    """What is told. All calls come on the event loop."""

    def snapshot(self, statuses: Iterable[StatusNews]) -> None:
        """The latest statuses of halted runs, and of those that are not halted any more. The feed goes live now."""

    def status(self, news: StatusNews) -> None:
        """A record of the `runs` topic."""

    def control(self, news: ControlNews, value: bytes) -> None:
        """A record of the `control` topic, and its JSON."""

    def order(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        """A record of the `commands` topic."""

    def is_halted(self, run_id: str) -> bool:
        """Whether this run is known to be halted."""


class ControlConsumer:
    """Reads for as long as `run` runs."""

    def __init__(self, settings: Settings, hearer: Handler) -> None:
        self._settings = settings
        self._runs = settings.topic("runs")
        self._control = settings.topic("control")
        self._commands = settings.topic("commands")
        self._hearer = hearer
        self._positions: dict[TopicPartition, int] = {}
        self.connected = False
        self.skipped = 0
        """Records that could not be read."""
        self.trouble: Unavailable | None = None
        """Why nothing is heard; None while the connection is well."""

    async def run(self) -> None:
        """Connect, read, connect again: until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await contained(self._session(backoff))
            except OffsetOutOfRangeError as error:
                self._positions.clear()
                self._report(error)
            except Exception as error:  # noqa: BLE001  # whatever it is: a breaker must not go deaf
                self._report(error)
            await asyncio.sleep(backoff.next_s())

    async def _session(self, backoff: Backoff) -> None:
        consumer = AIOKafkaConsumer(
            **connection_options(self._settings),
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_poll_records=RECORDS_MAX,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await access.start(consumer, self._settings)
                found = await partitions_of(consumer._client, self._settings, "runs", "control", "commands")
                partitions = [TopicPartition(topic, number) for topic in found for number in found[topic]]
                consumer.assign(partitions)
                ends = await consumer.end_offsets(partitions)
            if set(self._positions) == set(partitions):
                for partition, position in self._positions.items():
                    consumer.seek(partition, position)
            else:
                await self._bootstrap(consumer, ends)
            backoff.reset()
            self._well()
            await run_until_one_ends(probe(consumer._client), self._watch(consumer, partitions), self._listen(consumer))
        finally:
            self.connected = False
            await _close(consumer)

    async def _bootstrap(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> None:
        """Read `commands` and `runs` up to the ends seen before; `control` will be read from its end seen before.

        Orders first: a status that is newer than the order to stop a run takes it back.
        """
        whole = [partition for partition in ends if partition.topic != self._control]
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            positions = ends | await consumer.beginning_offsets(whole)
        for partition, position in positions.items():
            consumer.seek(partition, position)
        latest: dict[str, StatusNews] = {}
        await self._read(consumer, self._commands, ends, positions, self._hear_order)
        await self._read(consumer, self._runs, ends, positions, lambda record: self._gather(latest, record))
        consumer.resume(*ends)
        self._positions = positions
        self._hearer.snapshot(latest.values())

    async def _read(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        ends: dict[TopicPartition, int],
        positions: dict[TopicPartition, int],
        take: Callable[[ConsumerRecord[bytes, bytes]], None],
    ) -> None:
        """Read one topic up to its ends, and no other."""
        consumer.pause(*(partition for partition in ends if partition.topic != topic))
        consumer.resume(*(partition for partition in ends if partition.topic == topic))
        while left := [at for at in ends if at.topic == topic and positions[at] < ends[at]]:
            async with asyncio.timeout(READ_TIMEOUT_S):
                batches = await consumer.getmany(*left, timeout_ms=1_000)
            for records in batches.values():
                for record in records:
                    with self._readable(record):
                        take(record)
            for partition in left:
                positions[partition] = await consumer.position(partition)
            await asyncio.sleep(0)

    def _gather(self, latest: dict[str, StatusNews], record: ConsumerRecord[bytes, bytes]) -> None:
        news = read_status_news(record.key, record.value, record.timestamp)
        if news.halt is not None or self._hearer.is_halted(news.run_id):
            latest[news.run_id] = news
        else:
            latest.pop(news.run_id, None)

    async def _listen(self, consumer: AIOKafkaConsumer) -> None:
        hears = {
            self._control: self._hear_control, self._runs: self._hear_status, self._commands: self._hear_order,
        }  # fmt: skip
        while True:
            batches = await consumer.getmany(timeout_ms=60_000)
            # Statuses last: guards wait for the others.
            for partition in sorted(batches, key=lambda partition: partition.topic == self._runs):
                records, hear = batches[partition], hears[partition.topic]
                for record in records:
                    with self._readable(record):
                        hear(record)
                self._positions[partition] = records[-1].offset + 1
            await asyncio.sleep(0)  # getmany does not wait where much is at hand

    def _hear_control(self, record: ConsumerRecord[bytes, bytes]) -> None:
        if record.value is not None:
            self._hearer.control(read_control_news(record.value, record.timestamp), record.value)

    def _hear_status(self, record: ConsumerRecord[bytes, bytes]) -> None:
        self._hearer.status(read_status_news(record.key, record.value, record.timestamp))

    def _hear_order(self, record: ConsumerRecord[bytes, bytes]) -> None:
        self._hearer.order(record.key, record.value, record.timestamp)

    @contextlib.contextmanager
    def _readable(self, record: ConsumerRecord[bytes, bytes]) -> Any:
        try:
            yield
        except ValueError as error:
            self.skipped += 1
            if self.skipped % SKIPPED_SHOWN_EVERY == 1:
                place = f"{record.topic} partition {record.partition} offset {record.offset}"
                log.warning("skipped an unreadable record at %s (%d so far): %s", place, self.skipped, error)

    async def _watch(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        """Raise where reading stands still although there is something to read: a breaker must not go deaf."""
        behind: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            async with asyncio.timeout(READ_TIMEOUT_S):
                ends = await consumer.end_offsets(partitions)
            positions = {partition: await consumer.position(partition) for partition in partitions}
            stuck = [partition for partition, position in behind.items() if positions[partition] == position]
            if stuck:
                raise Unavailable(f"reading stands still at {', '.join(map(str, stuck))}")
            behind = {partition: at for partition, at in positions.items() if at < ends[partition]}

    def _report(self, error: Exception) -> None:
        if not isinstance(error, EXPECTED):
            log.error("unexpected while listening for halts; trying again", exc_info=error)
        problem = as_unavailable(self._settings, error)
        if self.trouble is None:
            log.warning("no halt is heard for now (runs known to be halted stay so): %s", problem)
        self.trouble = problem

    def _well(self) -> None:
        self.connected = True
        if self.trouble is not None:
            log.warning("halts are heard again")
            self.trouble = None


async def _close(consumer: AIOKafkaConsumer) -> None:
    for closing in (consumer.stop(), consumer._client.close()):  # `stop` may fail before it comes to its client
        with contextlib.suppress(Exception):  # it is given up; what it still has to say is no news
            await contained(closing, CLOSE_TIMEOUT_S)
