"""The topic of an OpenTelemetry collector's Kafka exporter as a source of spans.

At least once: an offset is committed when the turns of all spans before it are acknowledged. After a crash spans are
read again, and the ids of their turns make that harmless.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from streamproc.kafka.follow import POLL_MS, Topic
from streamproc.kafka.group import GroupFollower
from streamproc.kafka.session import Outage
from streamproc.otel.decoding import SPANS_MAX, UnreadableSpans, encoding_of, read_spans

if TYPE_CHECKING:
    from aiokafka import TopicPartition

    from streamproc.kafka.follow import Batches
    from streamproc.kafka.reading import Record
    from streamproc.otel.bridge import SpanBridge
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 500  # of one poll: each may hold many spans
SKIPPED_LOGGED_EVERY: Final = 1_000
REMEDY: Final = "it: create it, and let the collector's Kafka exporter write to it"


class SpanTopicReader:
    """Reads the spans of a topic into a bridge while `run` is active."""

    def __init__(self, settings: Settings, bridge: SpanBridge, topic: str, group: str) -> None:
        self.skipped = 0
        """Records that are no OTLP."""
        self._bridge = bridge
        self._follower = GroupFollower(
            settings, Topic(topic), self._handle,
            Outage(log, "reading spans", "cannot read spans", "reading spans again"),
            group=group, reset="earliest", drain=bridge.flush, remedy=REMEDY, max_poll_records=RECORDS_MAX,
        )  # fmt: skip

    @property
    def joined(self) -> bool:
        """Whether the reader is a member of its consumer group."""
        return self._follower.connected

    def stop(self) -> None:
        """Read no more, publish what there is, commit, and leave the group."""
        self._follower.stop()

    async def run(self) -> None:
        """Read until `stop`."""
        await self._follower.run()

    async def _handle(self, batches: Batches) -> None:
        for place, records in batches.items():
            for record in records:
                await self._take(place, record)
        while self._bridge.full and not self._follower.stopped:
            await asyncio.sleep(POLL_MS / 1000)

    async def _take(self, place: TopicPartition, record: Record) -> None:
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
        settled = self._follower.settling.begin(place, record.offset, len(spans))
        await self._bridge.take(spans, settled)
