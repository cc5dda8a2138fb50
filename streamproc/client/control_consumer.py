"""What the listener reads: `commands` and `runs` from start to end, then those and `control` live.

If workers sign their records, it passes on only those that `RecordVerifier` accepts.

It uses no consumer group: every listener reads every partition and commits nothing. After a lost connection it resumes
at its last position.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from streamproc.client.halt_records import NOWHERE, ControlNews, StatusNews, read_control_news, read_status_news
from streamproc.fleet.record_signing import RESUME_HEADER
from streamproc.kafka.follow import END, Follower, Topic
from streamproc.kafka.reading import append_time_ms
from streamproc.kafka.session import Outage
from streamproc.tracing.trace_context import CONTROL_HEADER, TURN_HEADER, find_traceparent

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka import ConsumerRecord

    from streamproc.client.dispatcher import Dispatcher
    from streamproc.client.heartbeat_watch import HeartbeatWatch
    from streamproc.client.verification import RecordVerifier
    from streamproc.kafka.follow import Batches
    from streamproc.kafka.reading import Record
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

SKIPPED_SHOWN_EVERY: Final = 1000
HEARTBEATS_MAX: Final = 2_000  # that are read at the start; compaction leaves a few hundred
ENDS_EVERY_S: Final = 1.5  # so often it is known that no heartbeat has been missed


class ControlConsumer:
    """Reads for as long as `run` runs."""

    def __init__(
        self, settings: Settings, dispatcher: Dispatcher, verifier: RecordVerifier, watch: HeartbeatWatch
    ) -> None:
        self._dispatcher = dispatcher
        self._watch = watch
        self._verifier = verifier
        self._latest: dict[str, dict[int, StatusNews]] | None = {}  # by run and partition, until all of them are read
        self.skipped = 0
        """Records that could not be read."""
        # Commands come first: a status that is newer than the command to stop a run supersedes it. Statuses come last:
        # guards wait for the other two.
        topics: dict[Topic, Callable[[Any], None]] = {
            Topic(settings.topic("commands")): self._apply_command,
            Topic(settings.topic("control"), begin=END, stage=2): self._apply_control,
            Topic(settings.topic("runs"), stage=1): self._apply_run,
            # An installation of an earlier version has none, and no guard waits for it.
            Topic(settings.topic("workers"), stage=2, records_max=HEARTBEATS_MAX, optional=True): watch.apply,
        }
        self._appliers = {topic.name: apply for topic, apply in topics.items()}
        lost = "receiving no halts for now (known halts stay in force)"
        self.follower = Follower(
            settings, tuple(topics), self._apply, Outage(log, "listening for halts", lost, "receiving halts again"),
            before_poll=self._note_contact, on_caught_up=self._snapshot, on_recreated=self._begin_again,
            ends_every_s=ENDS_EVERY_S,
        )  # fmt: skip
        """Tells whether halts are received: `connected`, `trouble`, `freshness`."""

    async def run(self) -> None:
        """Connect, read and reconnect until cancelled."""
        await self.follower.run()

    async def _note_contact(self, _consumer: Any) -> None:
        self._watch.note_contact(self.follower)

    async def _apply(self, batches: Batches) -> None:
        for partition, records in batches.items():
            apply = self._appliers[partition.topic]
            for record in records:
                with self._skip_unreadable(record):
                    apply(record)

    def _snapshot(self) -> None:
        latest, self._latest = self._latest or {}, None
        self._dispatcher.snapshot(news for said in latest.values() for news in said.values())

    async def _begin_again(self) -> None:
        self._latest = {}

    def _apply_run(self, record: ConsumerRecord[bytes, bytes]) -> None:
        if self._latest is None:
            self._apply_status(record)
        else:
            self._collect(self._latest, record)

    def _collect(self, latest: dict[str, dict[int, StatusNews]], record: ConsumerRecord[bytes, bytes]) -> None:
        news = _status_of(record)
        if news is None:  # a signed one would release a run without an operator's resume: only compaction does that
            if not self._verifier.required:
                said = latest.get((record.key or b"").decode(), {})
                for partition in (record.partition, NOWHERE):  # early versions do not say where a run is
                    said.pop(partition, None)
            return
        said = latest.get(news.run_id, {})
        halts = (*self._dispatcher.halts.of(news.run_id), *(one.halt for one in said.values() if one.halt is not None))
        resumed = bool(news.resumed_ms) and self._verifier.required  # no recorded halt from before counts
        if self._verifier.required and (news.stops or said or halts or resumed):
            verified = self._verifier.verified("runs", record, news, halts)
            if verified is None:
                return
            news = verified
        known = said.get(news.partition)
        if known is not None and news.is_before(known):
            return  # of a worker that has lost the partition since
        if known is not None and known.place == news.place and known.resumed_ms > news.resumed_ms:
            return  # a copy from which the operator's resume was removed
        if news.stops or halts or resumed:
            latest.setdefault(news.run_id, {})[news.partition] = news
        elif said:
            said.pop(news.partition, None)

    def _apply_control(self, record: ConsumerRecord[bytes, bytes]) -> None:
        if record.value is None:
            return
        traceparent = find_traceparent(record.headers, CONTROL_HEADER)
        news: ControlNews | None = read_control_news(record.value, record.timestamp, traceparent)
        if news is not None and self._verifier.required:
            tells = news.halt is not None or news.end is not None or news.resumes or news.provider is not None
            if not tells and not self._dispatcher.subscribed:
                return
            news = self._verifier.verified("control", record, news, self._dispatcher.halts.of(news.run_id))
            if news is None and self._dispatcher.subscribed:
                self._dispatcher.unverified(record.value)
        if news is not None:
            self._dispatcher.control(news, record.value)

    def _apply_status(self, record: ConsumerRecord[bytes, bytes]) -> None:
        news = _status_of(record)
        if news is not None and self._verifier.required:
            halts = self._dispatcher.halts.of(news.run_id)
            guarded = halts or news.run_id in self._dispatcher.guards or self._dispatcher.halts.ends.known(news.run_id)
            if not news.stops and not guarded and not (news.resumed_ms and self._verifier.is_new_resume(record)):
                return  # nothing to release: no need to verify every status of the fleet
            news = self._verifier.verified("runs", record, news, halts)
        if news is not None:
            self._dispatcher.status(news)

    def _apply_command(self, record: ConsumerRecord[bytes, bytes]) -> None:
        self._dispatcher.command(record.key, record.value, append_time_ms(record))

    @contextlib.contextmanager
    def _skip_unreadable(self, record: Record) -> Any:
        try:
            yield
        except ValueError as error:
            self.skipped += 1
            if self.skipped % SKIPPED_SHOWN_EVERY == 1:
                place = f"{record.topic} partition {record.partition} offset {record.offset}"
                log.warning("skipped an unreadable record at %s (%d so far): %s", place, self.skipped, error)


def _status_of(record: ConsumerRecord[bytes, bytes]) -> StatusNews | None:
    resumed = any(name == RESUME_HEADER for name, _ in record.headers)
    traceparent = find_traceparent(record.headers, TURN_HEADER)
    return read_status_news(record.value, record.timestamp, traceparent, resumed=resumed)
