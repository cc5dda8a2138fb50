"""The notifier on Kafka: reads the control topic in its own consumer group, and commits settled control events.

Delivery is at least once: an offset is committed when everything before it was delivered or given up. After a crash
the rest is read and sent again; `control_id` in each notification identifies a repetition.

Lost notifications are counted, logged, and reported in the next message. They are not published to the control topic:
that topic holds what the engine decided, and a replay must reproduce it exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from streamproc.errors import InvalidEvent
from streamproc.fleet.record_signing import record_signer
from streamproc.kafka import access
from streamproc.kafka.offset_tracker import OffsetTracker
from streamproc.kafka.options import connection_options
from streamproc.kafka.session import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_MS,
    Backoff,
    as_unavailable,
    find_partitions,
    is_member,
    probe_brokers,
    reconnecting,
    run_in_own_task,
    run_until_one_ends,
)
from streamproc.model.controls import read_control
from streamproc.notify.delivery_queue import DeliveryQueue
from streamproc.notify.notifier import Notifier
from streamproc.notify.service import Service

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

    from streamproc.notify.notification_config import NotificationConfig
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

POLL_MS: Final = 500  # longest delay before settled control events are committed
COUNTS_EVERY_S: Final = 60.0
DRAIN_TIMEOUT_S: Final = 10.0  # for queued notifications at a stop; the rest is sent after the next start
CLOSE_TIMEOUT_S: Final = 5.0
SKIPPED_LOGGED_EVERY: Final = 1_000


class NotificationConsumer:
    """Reads control events and sends their notifications while `run` is active."""

    def __init__(
        self, settings: Settings, config: NotificationConfig, *, group: str, from_beginning: bool = False
    ) -> None:
        services = [(destination, Service(destination, n)) for n, destination in enumerate(config.destinations, 1)]
        queues = [(one, DeliveryQueue(service, config, as_json=one.as_json)) for one, service in services]
        self.notifier = Notifier(config, queues)
        self.skipped = 0
        """Number of unreadable records, and of those that a worker should have signed and has not."""
        self._joined = False
        self._signer = record_signer(settings)
        self._settings = settings
        self._topic = settings.topic("control")
        self._group = group
        self._reset = "earliest" if from_beginning else "latest"
        self._offsets: OffsetTracker[TopicPartition] = OffsetTracker()
        self._assigned: set[TopicPartition] = set()
        self._first: dict[TopicPartition, int] = {}  # offset of the first record read
        self._stop = asyncio.Event()
        self._failing = False

    def stop(self) -> None:
        """Send the queued notifications within a short time, commit, and leave the group."""
        self._stop.set()

    def missing(self) -> list[str]:
        """Return what the notifier still waits for, in words; nothing if it is ready."""
        if self._stop.is_set():
            return ["stopping"]
        return [] if self._joined else ["joining the consumer group"]

    async def run(self) -> None:
        """Read until `stop`."""
        try:
            await run_until_one_ends(self._read(), self.notifier.run(), self._log_counts())
        finally:
            log.info("stopped %s", self.notifier.counts)

    async def _read(self) -> None:
        await reconnecting(self._session, self._report, purpose="reading control events", stop=self._stop)

    async def _session(self, backoff: Backoff) -> None:
        consumer = AIOKafkaConsumer(
            **connection_options(self._settings),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset=self._reset,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await access.start(consumer, self._settings)
                await find_partitions(consumer._client, self._settings, "control")
            consumer.subscribe([self._topic])
            self._assigned = set()
            await run_until_one_ends(probe_brokers(consumer._client), self._poll(consumer, backoff))
        finally:
            self._joined = False
            self._offsets.keep(set())  # uncommitted control events will be read again
            await _close(consumer)

    async def _poll(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        while not self._stop.is_set():
            await self._update_assignment(consumer, backoff)
            for place, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                for record in records:
                    self._add(place, record)
            await self._commit(consumer)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while self.notifier.waiting:
                    await asyncio.sleep(0.05)
        with contextlib.suppress(TimeoutError):  # without a broker, they are read and sent again
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._commit(consumer)

    async def _update_assignment(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        """Track the assigned partitions. Commit a position for one without any at once: otherwise a crash before the
        first commit would lose control events."""
        self._joined = is_member(consumer)
        assigned = set(consumer.assignment())
        if assigned == self._assigned:
            return
        self._offsets.keep(assigned)
        for place in assigned - self._assigned:
            if await consumer.committed(place) is None:
                first = self._first.get(place)  # records may have been read since `assignment`
                await consumer.commit({place: await consumer.position(place) if first is None else first})
        self._assigned = assigned
        if assigned:
            backoff.reset()
            self._failing = False
            log.info("reading %s partitions=%s", self._topic, sorted(place.partition for place in assigned))

    def _add(self, place: TopicPartition, record: ConsumerRecord[bytes, bytes]) -> None:
        self._first.setdefault(place, record.offset)
        settled = self._offsets.begin(place, record.offset, 1)
        try:
            control = read_control(record.value or b"")
            if self._signer.required:
                self._signer.check_about("control", record, control.run_id)
        except (ValueError, InvalidEvent) as error:
            self.skipped += 1
            if self.skipped % SKIPPED_LOGGED_EVERY == 1:
                where = f"{place.topic}[{place.partition}]@{record.offset}"
                kind = "unverified" if isinstance(error, InvalidEvent) else "unreadable"
                log.warning("skipped an %s control event at %s (%d so far): %s", kind, where, self.skipped, error)
            settled()
            return
        self.notifier.add(control, settled)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        ready = self._offsets.ready()
        if not ready:
            return
        try:
            await consumer.commit(ready)
        except (CommitFailedError, IllegalStateError) as error:
            log.info("commit failed; the partition's new owner reads these control events again: %s", error)

    async def _log_counts(self) -> None:
        while True:
            await asyncio.sleep(COUNTS_EVERY_S)
            log.info("counts %s skipped=%d", self.notifier.counts, self.skipped)

    def _report(self, error: Exception) -> None:
        if not self._failing:
            log.warning(
                "cannot read control events; reconnecting (queued notifications are still sent): %s",
                as_unavailable(self._settings, error),
            )
        self._failing = True


async def _close(consumer: AIOKafkaConsumer) -> None:
    for closing in (consumer.stop(), consumer._client.close()):  # `stop` can fail before it closes its client
        with contextlib.suppress(Exception):  # the consumer is discarded
            await run_in_own_task(closing, CLOSE_TIMEOUT_S)
