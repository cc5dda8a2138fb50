"""The listener's Kafka consumer: reads `commands` and `runs` from start to end, then follows them and `control` live.

If workers sign their records, it passes on only those that `RecordVerifier` accepts.

It uses no consumer group: every listener reads every partition and commits nothing. After a lost connection it resumes
at its last position; if the broker no longer has that offset, it reads `runs` from the beginning again.
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
from streamproc.fleet.record_signing import RESUME_HEADER
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.reader_first import read_first
from streamproc.kafka.reading import append_time_ms
from streamproc.kafka.session import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_MS,
    Backoff,
    as_unavailable,
    find_partitions,
    probe_brokers,
    reconnecting,
    run_in_own_task,
    run_until_one_ends,
)
from streamproc.tracing.trace_context import CONTROL_HEADER, TURN_HEADER, find_traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokafka import ConsumerRecord

    from streamproc.client.halts import Halt
    from streamproc.client.verification import RecordVerifier
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 2_000  # of one poll, so that the event loop is blocked for a few ms at most
READ_TIMEOUT_S: Final = 20.0
STALL_CHECK_EVERY_S: Final = 15.0
CLOSE_TIMEOUT_S: Final = 2.0
SKIPPED_SHOWN_EVERY: Final = 1000


class Handler(Protocol):
    """Receives the records. All calls come on the event loop."""

    def snapshot(self, statuses: Iterable[StatusNews]) -> None:
        """Apply the latest statuses of runs that are halted, or were until now. Live reading follows."""

    def status(self, news: StatusNews) -> None:
        """Apply a record of the `runs` topic."""

    def control(self, news: ControlNews, value: bytes) -> None:
        """Apply a record of the `control` topic; `value` is its JSON."""

    def command(self, key: bytes | None, value: bytes | None, appended_ms: int | None) -> None:
        """Apply a record of the `commands` topic."""

    def unverified(self, value: bytes) -> None:
        """Show a record of the `control` topic that no worker has signed. It changes nothing."""

    def halts_of(self, run_id: str) -> tuple[Halt, ...]:
        """Return why a run is halted, by each partition that says so; none if it is not known to be halted."""

    def guards(self, run_id: str) -> bool:
        """Return whether work on this run is guarded here."""

    @property
    def subscribed(self) -> bool:
        """Whether control events that neither halt nor resume a run are wanted."""


class ControlConsumer:
    """Reads for as long as `run` runs."""

    def __init__(self, settings: Settings, handler: Handler, verifier: RecordVerifier) -> None:
        self._settings = settings
        self._runs = settings.topic("runs")
        self._control = settings.topic("control")
        self._commands = settings.topic("commands")
        self._handler = handler
        self._verifier = verifier
        self._positions: dict[TopicPartition, int] = {}
        self.connected = False
        self.skipped = 0
        """Records that could not be read."""
        self.trouble: Unavailable | None = None
        """Why no halts are received; None while the connection works."""

    async def run(self) -> None:
        """Connect, read and reconnect until cancelled."""
        await reconnecting(self._session, self._report, purpose="listening for halts")

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
                read_first(consumer)
                found = await find_partitions(consumer._client, self._settings, "runs", "control", "commands")
                partitions = [TopicPartition(topic, number) for topic in found for number in found[topic]]
                consumer.assign(partitions)
                ends = await consumer.end_offsets(partitions)
            if set(self._positions) == set(partitions):
                for partition, position in self._positions.items():
                    consumer.seek(partition, position)
            else:
                await self._bootstrap(consumer, ends)
            backoff.reset()
            self._report_recovery()
            await run_until_one_ends(
                probe_brokers(consumer._client), self._detect_stall(consumer, partitions), self._follow(consumer)
            )
        finally:
            self.connected = False
            await _close(consumer)

    async def _bootstrap(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> None:
        """Read `commands` and `runs` up to `ends`; following `control` starts at its entry in `ends`.

        Commands come first: a status that is newer than the command to stop a run supersedes it.
        """
        compacted = [partition for partition in ends if partition.topic != self._control]
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            positions = ends | await consumer.beginning_offsets(compacted)
        for partition, position in positions.items():
            consumer.seek(partition, position)
        latest: dict[str, dict[int, StatusNews]] = {}  # by run and partition
        await self._read_topic(consumer, self._commands, ends, positions, self._apply_command)
        await self._read_topic(consumer, self._runs, ends, positions, lambda record: self._collect(latest, record))
        consumer.resume(*ends)
        self._positions = positions
        self._handler.snapshot(news for said in latest.values() for news in said.values())

    async def _read_topic(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        ends: dict[TopicPartition, int],
        positions: dict[TopicPartition, int],
        apply: Callable[[ConsumerRecord[bytes, bytes]], None],
    ) -> None:
        """Read one topic up to `ends`, with all others paused."""
        consumer.pause(*(partition for partition in ends if partition.topic != topic))
        consumer.resume(*(partition for partition in ends if partition.topic == topic))
        while left := [at for at in ends if at.topic == topic and positions[at] < ends[at]]:
            async with asyncio.timeout(READ_TIMEOUT_S):
                batches = await consumer.getmany(*left, timeout_ms=1_000)
            for records in batches.values():
                for record in records:
                    with self._skip_unreadable(record):
                        apply(record)
            for partition in left:
                positions[partition] = await consumer.position(partition)
            await asyncio.sleep(0)

    def _collect(self, latest: dict[str, dict[int, StatusNews]], record: ConsumerRecord[bytes, bytes]) -> None:
        news = _status_of(record)
        if news is None:  # a signed one would release a run without an operator's resume: only compaction does that
            if not self._verifier.required:
                latest.get((record.key or b"").decode(), {}).pop(record.partition, None)
            return
        said = latest.get(news.run_id, {})
        halts = (*self._handler.halts_of(news.run_id), *(one.halt for one in said.values() if one.halt is not None))
        if self._verifier.required and (news.halt is not None or said or halts):
            verified = self._verifier.verified("runs", record, news, halts)
            if verified is None:
                return
            news = verified
        known = said.get(news.partition)
        if known is not None and news.is_before(known):
            return  # of a worker that has lost the partition since
        if news.halt is not None or halts:
            latest.setdefault(news.run_id, {})[news.partition] = news
        elif said:
            said.pop(news.partition, None)

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        appliers = {
            self._control: self._apply_control, self._runs: self._apply_status, self._commands: self._apply_command,
        }  # fmt: skip
        while True:
            batches = await consumer.getmany(timeout_ms=60_000)
            # Statuses last: guards wait for the other two.
            for partition in sorted(batches, key=lambda partition: partition.topic == self._runs):
                records, apply = batches[partition], appliers[partition.topic]
                for record in records:
                    with self._skip_unreadable(record):
                        apply(record)
                self._positions[partition] = records[-1].offset + 1
            await asyncio.sleep(0)  # getmany returns without yielding while records are buffered

    def _apply_control(self, record: ConsumerRecord[bytes, bytes]) -> None:
        if record.value is None:
            return
        traceparent = find_traceparent(record.headers, CONTROL_HEADER)
        news: ControlNews | None = read_control_news(record.value, record.timestamp, traceparent)
        if news is not None and self._verifier.required:
            if news.halt is None and not news.resumes and not self._handler.subscribed:
                return
            news = self._verifier.verified("control", record, news, self._handler.halts_of(news.run_id))
            if news is None and self._handler.subscribed:
                self._handler.unverified(record.value)
        if news is not None:
            self._handler.control(news, record.value)

    def _apply_status(self, record: ConsumerRecord[bytes, bytes]) -> None:
        news = _status_of(record)
        if news is not None and self._verifier.required:
            halts = self._handler.halts_of(news.run_id)
            if news.halt is None and not halts and not self._handler.guards(news.run_id):
                return  # nothing to release: no need to verify every status of the fleet
            news = self._verifier.verified("runs", record, news, halts)
        if news is not None:
            self._handler.status(news)

    def _apply_command(self, record: ConsumerRecord[bytes, bytes]) -> None:
        self._handler.command(record.key, record.value, append_time_ms(record))

    @contextlib.contextmanager
    def _skip_unreadable(self, record: ConsumerRecord[bytes, bytes]) -> Any:
        try:
            yield
        except ValueError as error:
            self.skipped += 1
            if self.skipped % SKIPPED_SHOWN_EVERY == 1:
                place = f"{record.topic} partition {record.partition} offset {record.offset}"
                log.warning("skipped an unreadable record at %s (%d so far): %s", place, self.skipped, error)

    async def _detect_stall(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        """Raise if a position does not advance although there are records to read: halts would be missed."""
        behind: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(STALL_CHECK_EVERY_S)
            async with asyncio.timeout(READ_TIMEOUT_S):
                ends = await consumer.end_offsets(partitions)
            positions = {partition: await consumer.position(partition) for partition in partitions}
            stalled = [partition for partition, position in behind.items() if positions[partition] == position]
            if stalled:
                raise Unavailable(f"reading has stalled at {', '.join(map(str, stalled))}")
            behind = {partition: at for partition, at in positions.items() if at < ends[partition]}

    def _report(self, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            self._positions.clear()
        problem = as_unavailable(self._settings, error)
        if self.trouble is None:
            log.warning("receiving no halts for now (known halts stay in force); reconnecting: %s", problem)
        self.trouble = problem

    def _report_recovery(self) -> None:
        self.connected = True
        if self.trouble is not None:
            log.warning("receiving halts again")
            self.trouble = None


def _status_of(record: ConsumerRecord[bytes, bytes]) -> StatusNews | None:
    resumed = any(name == RESUME_HEADER for name, _ in record.headers)
    traceparent = find_traceparent(record.headers, TURN_HEADER)
    return read_status_news(record.value, record.timestamp, traceparent, resumed=resumed)


async def _close(consumer: AIOKafkaConsumer) -> None:
    for closing in (consumer.stop(), consumer._client.close()):  # `stop` may fail before it closes its client
        with contextlib.suppress(Exception):  # this consumer is abandoned: its errors do not matter
            await run_in_own_task(closing, CLOSE_TIMEOUT_S)
