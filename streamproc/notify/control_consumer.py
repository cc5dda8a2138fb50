"""The notifier on Kafka: reads the control topic in its own consumer group, and commits settled control events.

Delivery is at least once: an offset is committed when everything before it was delivered or given up. After a crash
the rest is read and sent again; `control_id` in each notification identifies a repetition.

Lost notifications are counted, logged, and reported in the next message. They are not published to the control topic:
that topic holds what the engine decided, and a replay must reproduce it exactly.

It also hears the workers, and tells people when they do not decide: a worker that is gone cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from aiokafka import TopicPartition

from streamproc.errors import InvalidEvent
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.watching import Watching, watching_of
from streamproc.fleet.worker_listener import WorkerListener, ends_of_turns
from streamproc.kafka.follow import Topic
from streamproc.kafka.group import GroupFollower
from streamproc.kafka.session import Outage, run_until_one_ends
from streamproc.model.controls import read_control
from streamproc.notify.addresses import queues_of
from streamproc.notify.notifier import NoticeLinks, Notifier
from streamproc.notify.worker_watch import WorkerWatch
from streamproc.tracing.trace_context import CONTROL_HEADER, find_traceparent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.kafka.follow import Batches
    from streamproc.kafka.reading import Record
    from streamproc.notify.notification_config import NotificationConfig
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 0.5
COUNTS_EVERY_S: Final = 60.0
DRAIN_TIMEOUT_S: Final = 10.0  # for queued notifications at a stop; the rest is sent after the next start
CLOSE_TIMEOUT_S: Final = 5.0
SKIPPED_LOGGED_EVERY: Final = 1_000


class NotificationConsumer:
    """Reads control events and sends their notifications while `run` is active."""

    def __init__(
        self, settings: Settings, config: NotificationConfig, *, group: str, from_beginning: bool = False
    ) -> None:
        self.notifier = Notifier(config, queues_of(config), links=NoticeLinks(settings.page_url, settings.trace_url))
        self.skipped = 0
        """Number of unreadable records, and of those that a worker should have signed and has not."""
        self._settings = settings
        self._signer = record_signer(settings)
        self._workers = WorkerListener(
            settings, Outage(log, "listening for workers", "cannot hear the workers", "hearing the workers again")
        )
        self._watch = WorkerWatch()
        lost = "cannot read control events (queued notifications are still sent)"
        self._follower = GroupFollower(
            settings, Topic(settings.topic("control")), self._handle,
            Outage(log, "reading control events", lost, "reading control events again"),
            group=group, reset="earliest" if from_beginning else "latest", drain=self._drain,
        )  # fmt: skip

    def stop(self) -> None:
        """Send the queued notifications within a short time, commit, and leave the group."""
        self._follower.stop()

    def missing(self) -> list[str]:
        """Return what the notifier still waits for, in words; nothing if it is ready."""
        if self._follower.stopped:
            return ["stopping"]
        return [] if self._follower.connected else ["joining the consumer group"]

    async def run(self) -> None:
        """Read until `stop`."""
        try:
            await run_until_one_ends(
                self._follower.run(),
                self.notifier.run(),
                self._workers.run(),
                self._watch_workers(),
                self._log_counts(),
            )
        finally:
            log.info("stopped %s", self.notifier.counts)

    def watching(self, ends: Mapping[int, int] | None = None) -> Watching:
        """Return whether workers decide; with the ends of the turns topic, also how many turns wait."""
        lag_warn_s = self._settings.lag_warn_s
        return watching_of(self._workers.workers, time.monotonic(), ends=ends, lag_warn_s=lag_warn_s)

    async def _watch_workers(self) -> None:
        """Tell people when workers stop deciding, and when they decide again. Of the notifiers of a group, the one that
        reads the first partition tells them."""
        first = TopicPartition(self._settings.topic("control"), 0)
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            kind = self._watch.step(self.watching(), time.monotonic())
            if kind:
                found = self.watching(await ends_of_turns(self._settings))
                event = self._watch.event(kind, found, int(time.time() * 1000))
                log.warning("%s", event.message)
                if self._follower.reads(first):
                    self.notifier.add(event, lambda: None)

    async def _handle(self, batches: Batches) -> None:
        for records in batches.values():
            for record in records:
                self._add(record)

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while self.notifier.waiting:
                    await asyncio.sleep(0.05)

    def _add(self, record: Record) -> None:
        settled = self._follower.settling.begin(TopicPartition(record.topic, record.partition), record.offset, 1)
        try:
            control = read_control(record.value or b"", find_traceparent(record.headers, CONTROL_HEADER))
            if self._signer.required:
                self._signer.check_about("control", record, control.run_id)
        except (ValueError, InvalidEvent) as error:
            self.skipped += 1
            if self.skipped % SKIPPED_LOGGED_EVERY == 1:
                where = f"{record.topic}[{record.partition}]@{record.offset}"
                kind = "unverified" if isinstance(error, InvalidEvent) else "unreadable"
                log.warning("skipped an %s control event at %s (%d so far): %s", kind, where, self.skipped, error)
            settled()
            return
        self.notifier.add(control, settled)

    async def _log_counts(self) -> None:
        while True:
            await asyncio.sleep(COUNTS_EVERY_S)
            log.info("counts %s skipped=%d", self.notifier.counts, self.skipped)
