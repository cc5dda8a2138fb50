"""The notifier on Kafka: follows the control topic in a consumer group of its own, and commits what is settled.

At least once: an offset is committed when everything before it was delivered or given up. After a crash the rest is
read and sent again; `control_id` in each notification tells a repetition.

Lost ones are counted and logged, and told in the next message; they are not put onto the control topic. That topic
is what the engine decided, and a replay must find it again there word for word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from streamproc.kafka import access
from streamproc.kafka.options import connection_options
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
from streamproc.model.controls import read_control
from streamproc.notify.delivery_queue import DeliveryQueue
from streamproc.notify.notifier import Notifier
from streamproc.notify.offset_tracker import Commits
from streamproc.notify.service import Service

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

    from streamproc.notify.notification_config import NotificationConfig
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

POLL_MS: Final = 500  # at most so late is committed what was settled meanwhile
COUNTS_EVERY_S: Final = 60.0
LAST_WORDS_S: Final = 10.0  # to send what waits when asked to stop; the rest is sent after the next start
CLOSE_TIMEOUT_S: Final = 5.0
SKIPPED_SHOWN_EVERY: Final = 1_000


class NotificationConsumer:
    """Reads for as long as `run` runs."""

    def __init__(
        self, settings: Settings, plan: NotificationConfig, *, group: str, from_beginning: bool = False
    ) -> None:
        services = [(destination, Service(destination, n)) for n, destination in enumerate(plan.destinations, 1)]
        queues = [(one, DeliveryQueue(service, plan, as_json=one.as_json)) for one, service in services]
        self.notifier = Notifier(plan, queues)
        self.skipped = 0
        """Records that could not be read."""
        self._settings = settings
        self._topic = settings.topic("control")
        self._group = group
        self._reset = "earliest" if from_beginning else "latest"
        self._commits: Commits[TopicPartition] = Commits()
        self._known: set[TopicPartition] = set()
        self._first: dict[TopicPartition, int] = {}
        self._stop = asyncio.Event()
        self._troubled = False

    def stop(self) -> None:
        """End: send what can be sent soon, commit, leave the group."""
        self._stop.set()

    async def run(self) -> None:
        """Follow until `stop`."""
        try:
            await run_until_one_ends(self._listen(), self.notifier.run(), self._count())
        finally:
            log.info("stopped %s", self.notifier.counts)

    async def _listen(self) -> None:
        await reconnecting(self._session, self._report, purpose="following control events", stop=self._stop)

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
            self._known = set()
            await run_until_one_ends(probe_brokers(consumer._client), self._follow(consumer, backoff))
        finally:
            self._commits.keep(set())  # what is not committed will be read again
            await _close(consumer)

    async def _follow(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        while not self._stop.is_set():
            await self._greet(consumer, backoff)
            for place, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                for record in records:
                    self._take(place, record)
            await self._commit(consumer)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while self.notifier.waiting:
                    await asyncio.sleep(0.05)
        with contextlib.suppress(TimeoutError):  # the broker may be away: then it is read, and told, again
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._commit(consumer)

    async def _greet(self, consumer: AIOKafkaConsumer, backoff: Backoff) -> None:
        """Take note of partitions that are new to us. One that nobody has read yet begins at a place that is
        committed at once, so that a crash before the first notification loses nothing."""
        assigned = set(consumer.assignment())
        if assigned == self._known:
            return
        self._commits.keep(assigned)
        for place in assigned - self._known:
            if await consumer.committed(place) is None:
                first = self._first.get(place)  # it may have been assigned, and read, since we looked
                await consumer.commit({place: await consumer.position(place) if first is None else first})
        self._known = assigned
        if assigned:
            backoff.reset()
            self._troubled = False
            log.info("following %s partitions=%s", self._topic, sorted(place.partition for place in assigned))

    def _take(self, place: TopicPartition, record: ConsumerRecord[bytes, bytes]) -> None:
        self._first.setdefault(place, record.offset)
        settled = self._commits.begin(place, record.offset, 1)
        try:
            control = read_control(record.value or b"")
        except ValueError as error:
            self.skipped += 1
            if self.skipped % SKIPPED_SHOWN_EVERY == 1:
                where = f"{place.topic}[{place.partition}]@{record.offset}"
                log.warning("skipped an unreadable control event at %s (%d so far): %s", where, self.skipped, error)
            settled()
            return
        self.notifier.take(control, settled)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        ready = self._commits.ready()
        if not ready:
            return
        try:
            await consumer.commit(ready)
        except (
            CommitFailedError,
            IllegalStateError,
        ) as error:  # somebody else has the partition now, and reads it again
            log.info("not committed: %s", error)

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNTS_EVERY_S)
            log.info("counts %s skipped=%d", self.notifier.counts, self.skipped)

    def _report(self, error: Exception) -> None:
        if not self._troubled:
            log.warning(
                "no control events come (notifications that wait are still sent): %s",
                as_unavailable(self._settings, error),
            )
        self._troubled = True


async def _close(consumer: AIOKafkaConsumer) -> None:
    for closing in (consumer.stop(), consumer._client.close()):  # `stop` may fail before it comes to its client
        with contextlib.suppress(Exception):  # it is given up; what it still has to say is no news
            await run_in_own_task(closing, CLOSE_TIMEOUT_S)
