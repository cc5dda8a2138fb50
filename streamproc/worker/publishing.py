"""Publishing to Kafka: decisions, statuses and dead letters by one producer, changelog records by another.

Both producers are idempotent, with `acks=all`. There are two of them because a decision must not wait behind a batch of
states. A batch is sent again until the broker acknowledges it. Only errors that a retry cannot fix (a missing right, a
record that is too large) are raised.

Decisions, statuses and the events that workers add to the turns topic are signed if a control key is set.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from streamproc.core.decision import Decision, Evidence, encode_decision
from streamproc.errors import Problem
from streamproc.fleet.record_signing import LogPlace, record_signer
from streamproc.fleet.signing import AGE_MS_MAX
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import Home
from streamproc.kafka.reading import LOG_APPEND_TIME
from streamproc.model.time_range import wall_ms
from streamproc.settings import SHARED
from streamproc.tracing.trace_context import CONTROL_HEADER
from streamproc.worker.counts import DecisionTimes, WorkerCounts
from streamproc.worker.limits import BATCH_BYTES, CONTROL_BYTES_MAX, HALT_BYTES_MAX, REFUSAL_TEXT_MAX, REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamproc.settings import Settings
    from streamproc.worker.partition_store import Change

COMPRESSION: Final = "zstd"  # of states: two fifths fewer bytes, for half a microsecond a turn
SOURCE: Final = b"/streamproc/worker"

SIGNED: Final = frozenset({"control", "runs", "turns"})  # the topics whose readers check who wrote a record
LATE_MS: Final = AGE_MS_MAX // 2  # a record that was stored so long after it was signed is signed and sent again

Headers = list[tuple[str, bytes]]
NO_HEADERS: Final[Headers] = []

BY_KEY: Final = -1  # the partition that Kafka's own hash gives the key

POISON: Final = Problem(
    "record",
    "was in hand when the worker crashed twice",
    "report it with the worker's log; publish it again once the fault is fixed",
)


class OutgoingRecord(NamedTuple):
    """A record to publish: the short name of its topic, key, value, headers, and the offset on the turns topic of the
    event that it follows from."""

    topic: str
    key: bytes | None
    value: bytes | None  # None: a tombstone
    headers: Headers = NO_HEADERS
    partition: int | None = None  # None: that of its run
    at_ms: int | None = None  # its timestamp, on a topic with CreateTime; None: now
    offset: int = -1  # -1: it follows from no event
    times: DecisionTimes | None = None  # of a decision whose delay is measured


def control_record(
    key: bytes, decision: Decision, times: DecisionTimes | None = None, traceparent: str = ""
) -> OutgoingRecord:
    """Return a decision as a record of the control topic, with CloudEvents attributes in its headers (binary mode).

    `traceparent` is that of the event that caused it.
    """
    value = encode_decision(decision)
    if len(value) > CONTROL_BYTES_MAX:
        value = encode_decision(_shortened(decision))
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", decision.id.encode()),
        ("ce_type", decision.type.encode()),
        ("ce_source", SOURCE),
        ("ce_subject", key),
        ("content-type", b"application/json"),
    ]
    if traceparent:
        headers.append((CONTROL_HEADER, traceparent.encode()))
    offset = decision.trigger.offset if decision.trigger is not None else None
    return OutgoingRecord("control", key, value, headers, offset=-1 if offset is None else offset, times=times)


def kept_halt(decision: Decision, value: bytes) -> bytes:
    """Return the decision that halted a run (`value`: as published) in the size in which it is kept with the run."""
    return value if len(value) <= HALT_BYTES_MAX else encode_decision(_shortened(decision))


def _shortened(decision: Decision) -> Decision:
    """Return a decision without the parts that a caller can make too large, so that it fits into a record."""
    evidence, message = decision.evidence, decision.message[:REFUSAL_TEXT_MAX]
    if evidence is not None:
        evidence = Evidence(kind=evidence.kind, count=evidence.count)
    return msgspec.structs.replace(decision, labels=None, message=message, evidence=evidence)


def dead_letter_record(record: Any, problems: Sequence[Problem], *, version: str, bytes_max: int) -> OutgoingRecord:
    """Return a refused record as it arrived (truncated if too large), with the reason and its origin in headers."""
    first = problems[0]
    place = {
        "source.topic": record.topic,
        "source.partition": record.partition,
        "source.offset": record.offset,
        "source.timestamp": record.timestamp,
        "detector.version": version,
    }
    headers = [
        ("reason", _text("; ".join(f"{problem.field}: {problem.what}" for problem in problems))),
        ("field", _text(first.field)),
        ("remedy", _text(first.remedy)),
        *((name, _text(str(value))) for name, value in place.items()),
    ]
    key, value = record.key, record.value or b""
    value_max = max(0, bytes_max - len(key or b""))
    if len(value) > value_max:
        headers.append(("truncated.from_bytes", _text(str(len(value)))))
        key, value = (key[:value_max] if key is not None else None), value[:value_max]
    return OutgoingRecord("dead-letter", key, value, headers)


def _text(text: str) -> bytes:
    return text[:REFUSAL_TEXT_MAX].encode("utf-8", "replace")


class Publisher:
    """The worker's two producers."""

    def __init__(
        self,
        settings: Settings,
        changelogs: dict[str, str],
        partitions: dict[str, int],
        counts: WorkerCounts | None = None,
    ) -> None:
        self._settings = settings
        self._counts = counts or WorkerCounts()
        self._changelogs = changelogs
        self._partitions = partitions
        self._homes = {topic: Home("murmur2", count) for topic, count in partitions.items()}
        self._ahead_ms = 0
        self._signer = record_signer(settings)
        self._signer.must_sign()
        self._publishing = self._producer("tell")  # the client id ends with it: quotas may name it
        self._storing = self._producer("store")

    def _producer(self, role: str) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            **connection_options(self._settings),
            client_id=f"{self._settings.worker_group}-{role}",
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            compression_type=COMPRESSION if role == "store" else None,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
        )

    async def start(self) -> None:
        """Connect. Raises `KafkaError` if no broker answers."""
        await self._publishing.start()
        await self._storing.start()

    async def stop(self) -> None:
        """Send what is under way, and disconnect."""
        await asyncio.gather(self._publishing.stop(), self._storing.stop())

    async def publish(self, partition: int, outgoing: Sequence[OutgoingRecord]) -> None:
        """Publish records, each to its partition (by default this one); return once the broker has acknowledged all.

        Readers refuse a record that the broker stored long after it was signed, which happens when the broker was away:
        it is sent again. Readers recognise a repeated record. A shadow adds nothing to the topics that it shares.
        """
        if self._settings.shadow:
            outgoing = [outgoing_record for outgoing_record in outgoing if outgoing_record.topic not in SHARED]
        times = [one.times for one in outgoing if one.topic == "control"]
        while outgoing:
            signed_ms = self.log_now_ms()
            await self._publish(partition, outgoing, signed_ms)
            if not self._signer.required or abs(self.log_now_ms() - signed_ms) < LATE_MS:
                break
            outgoing = [outgoing_record for outgoing_record in outgoing if outgoing_record.topic in SIGNED]
        self._counts.acknowledged(times, self._ahead_ms / 1000)

    async def _publish(self, partition: int, outgoing: Sequence[OutgoingRecord], signed_ms: int) -> None:
        by_place: dict[tuple[str, int], list[OutgoingRecord]] = {}
        for outgoing_record in outgoing:
            by_place.setdefault(self._place(outgoing_record, partition), []).append(outgoing_record)
        posted = []
        for (topic, place), records in by_place.items():
            ready = [(r.key, r.value, self._headers(r, partition, signed_ms), r.at_ms) for r in records]
            posted.append(await post(self._publishing, topic, place, ready))
        for batches in posted:
            metadata = await delivered(batches)
            if metadata is not None and metadata.timestamp_type == LOG_APPEND_TIME:
                self._ahead_ms = metadata.timestamp - wall_ms()

    def _headers(self, outgoing_record: OutgoingRecord, partition: int, signed_ms: int) -> Headers:
        """Return the headers of a record, with its signature if records are signed."""
        if not self._signer.required or outgoing_record.topic not in SIGNED:
            return outgoing_record.headers
        place = LogPlace(partition, outgoing_record.offset, signed_ms)
        signature = self._signer.sign(outgoing_record.topic, outgoing_record.key, outgoing_record.value, place)
        return [*outgoing_record.headers, signature]

    def log_now_ms(self) -> int:
        """Return the time of the broker's clock, estimated from its last acknowledgement."""
        return wall_ms() + self._ahead_ms

    def _place(self, outgoing_record: OutgoingRecord, partition: int) -> tuple[str, int]:
        topic = self._settings.topic(outgoing_record.topic)
        if outgoing_record.partition is None:
            return topic, partition % self._partitions.get(topic, partition + 1)
        if outgoing_record.partition != BY_KEY:
            return topic, outgoing_record.partition
        return topic, self._homes[topic].of(outgoing_record.key or b"")

    async def store(self, table: str, partition: int, changes: Iterable[Change]) -> int | None:
        """Write states to a table's changelog; return the offset of the last one (None: the broker does not say)."""
        records = [(key, raw, NO_HEADERS, None) for key, raw in changes]
        posted = await post(self._storing, self._changelogs[table], partition, records)
        metadata = await delivered(posted)
        self._counts.changelog_bytes += sum(batch.size() for _, batch in posted)
        if metadata is None or metadata.offset < 0:
            return None
        return int(metadata.offset) + posted[-1][1].record_count() - 1


Posted = list[tuple[Any, Any]]
"""Submitted batches, each with the future of its acknowledgement before it."""


async def post(
    producer: AIOKafkaProducer,
    topic: str,
    partition: int,
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int | None]],
) -> Posted:
    """Submit records in order, in as few batches as they fit into."""
    posted: Posted = []
    batch = producer.create_batch()
    for key, value, headers, at_ms in records:
        if batch.append(key=key, value=value, timestamp=at_ms, headers=headers) is None:
            posted.append((await _submit(producer, batch, topic, partition), batch))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=at_ms, headers=headers)
    posted.append((await _submit(producer, batch, topic, partition), batch))
    return posted


async def delivered(posted: Posted) -> Any:
    """Wait for all acknowledgements; return that of the last batch (None: a repeated batch, without metadata)."""
    return [await future for future, _ in posted][-1]


async def _submit(producer: AIOKafkaProducer, batch: Any, topic: str, partition: int) -> Any:
    """Submit a batch; wait without limit while the queue of its partition is full."""
    while True:
        try:
            return await producer.send_batch(batch, topic, partition=partition)
        except KafkaTimeoutError:
            continue
