"""The topic of an OpenTelemetry collector's Kafka exporter as a source of spans.

At least once: an offset is committed when the turns of all spans before it are acknowledged. After a crash spans are
read again, and the ids of their turns make that harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from streamproc.errors import Unavailable
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.session import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_MS,
    Backoff,
    as_unavailable,
    is_member,
    probe_brokers,
    reconnecting,
    run_in_own_task,
    run_until_one_ends,
)
from streamproc.notify.offset_tracker import OffsetTracker
from streamproc.otel.decoding import SPANS_MAX, UnreadableSpans, encoding_of, read_spans

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

    from streamproc.otel.bridge import SpanBridge
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

POLL_MS: Final = 500
CLOSE_TIMEOUT_S: Final = 5.0
SKIPPED_LOGGED_EVERY: Final = 1_000


class SpanTopicReader:
    """Reads the spans of a topic into a bridge while `run` is active."""

    def __init__(self, settings: Settings, bridge: SpanBridge, topic: str, group: str) -> None:
        self.skipped = 0
        """Records that are no OTLP."""
        self.joined = False
        """Whether the reader is a member of its consumer group."""
        self._settings = settings
        self._bridge = bridge
        self._topic = topic
        self._group = group
        self._offsets: OffsetTracker[TopicPartition] = OffsetTracker()
        self._assigned: set[TopicPartition] = set()
        self._stop = asyncio.Event()
        self._failing = False

    def stop(self) -> None:
        """Read no more, publish what there is, commit, and leave the group."""
        self._stop.set()

    async def run(self) -> None:
        """Read until `stop`."""
        await reconnecting(self._session, self._report, purpose="reading spans", stop=self._stop)

    async def _session(self, backoff: Backoff) -> None:
        consumer = AIOKafkaConsumer(
            **connection_options(self._settings),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await access.start(consumer, self._settings)
                cluster = await consumer._client.fetch_all_metadata()
            if not cluster.partitions_for_topic(self._topic):
                raise Unavailable(
                    f"the broker at {self._settings.brokers} has no topic {self._topic}, or this user may not read "
                    "it: create it, and let the collector's Kafka exporter write to it"
                )
            consumer.subscribe([self._topic])
            self._assigned = set()
            await run_until_one_ends(probe_brokers(consumer._client), self._poll(consumer, backoff))
        finally:
            self.joined = False
            self._offsets.keep(set())
            for closing in (consumer.stop(), consumer._client.close()):  # `stop` can fail before it closes its client
                with contextlib.suppress(Exception):  # the consumer is discarded
                    await run_in_own_task(closing, CLOSE_TIMEOUT_S)

    async def _poll(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        while not self._stop.is_set():
            self._update_assignment(consumer, backoff)
            if self._bridge.full:
                await asyncio.sleep(POLL_MS / 1000)
                continue
            for place, records in (await consumer.getmany(timeout_ms=POLL_MS, max_records=500)).items():
                for record in records:
                    await self._take(place, record)
            await self._commit(consumer)
        await self._bridge.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._commit(consumer)

    def _update_assignment(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        self.joined = is_member(consumer)
        assigned = set(consumer.assignment())
        if assigned == self._assigned:
            return
        self._offsets.keep(assigned)
        self._assigned = assigned
        if assigned:
            backoff.reset()
            self._failing = False
            log.info("reading %s partitions=%s", self._topic, sorted(place.partition for place in assigned))

    async def _take(self, place: TopicPartition, record: ConsumerRecord[bytes, bytes]) -> None:
        value = record.value or b""
        try:
            found = await asyncio.to_thread(read_spans, value, encoding_of(value))
            spans = list(islice(found, SPANS_MAX))
        except UnreadableSpans as error:
            self.skipped += 1
            if self.skipped % SKIPPED_LOGGED_EVERY == 1:
                where = f"{place.topic}[{place.partition}]@{record.offset}"
                log.warning("skipped a record at %s (%d so far): %s", where, self.skipped, error)
            spans = []
        settled = self._offsets.begin(place, record.offset, len(spans))
        await self._bridge.take(spans, settled)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        ready = self._offsets.ready()
        if not ready:
            return
        try:
            await consumer.commit(ready)
        except (CommitFailedError, IllegalStateError) as error:
            log.info("commit failed; the partition's new owner reads these spans again: %s", error)

    def _report(self, error: Exception) -> None:
        if not self._failing:
            log.warning("cannot read spans; reconnecting: %s", as_unavailable(self._settings, error))
        self._failing = True
