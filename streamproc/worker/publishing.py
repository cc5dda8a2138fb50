"""What the worker says to Kafka, and when it counts as said.

Two idempotent producers with `acks=all`: one tells (decisions, statuses, dead letters), one stores (the changelog), so
that a decision never waits behind a batch of states. A batch is repeated until the broker has it; only what cannot
be mended by repeating (a missing right, a record that is too large) is raised.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError
from aiokafka.partitioner import murmur2

from streamproc.core.decision import Decision, Evidence, encode_decision
from streamproc.kafka.options import connection_options
from streamproc.worker.limits import BATCH_BYTES, CONTROL_BYTES_MAX, REFUSAL_TEXT_MAX, REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamproc.errors import Problem
    from streamproc.settings import Settings
    from streamproc.worker.partition_store import Change

COMPRESSION: Final = "zstd"  # of states: two fifths fewer bytes, for half a microsecond a turn
SOURCE: Final = b"/streamproc/worker"

LOG_APPEND_TIME: Final = 1  # of an acknowledgement: its time is the broker's

Headers = list[tuple[str, bytes]]
NO_HEADERS: Final[Headers] = []


BY_KEY: Final = -1  # in the partition that its key has in Kafka's own hash


class OutgoingRecord(NamedTuple):
    """A record to tell: the short name of its topic, key, value, headers."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = NO_HEADERS
    partition: int | None = None  # None: where its run is
    at_ms: int | None = None  # its time, on a topic that keeps the times of its writers; None: now


def control_record(key: bytes, decision: Decision) -> OutgoingRecord:
    """A decision as a record of the control topic, with the CloudEvents attributes in its headers (binary mode)."""
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
    return OutgoingRecord("control", key, value, headers)


def _shortened(decision: Decision) -> Decision:
    """The same decision without what others made too large: it must arrive."""
    decision.labels = None
    decision.message = decision.message[:REFUSAL_TEXT_MAX]
    if decision.evidence is not None:
        decision.evidence = Evidence(kind=decision.evidence.kind, count=decision.evidence.count)
    return decision


def dead_letter_record(record: Any, problems: Sequence[Problem], *, version: str, bytes_max: int) -> OutgoingRecord:
    """A refused record, as it came, with what is wrong and where it came from. Of one too large, the beginning."""
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
    room = max(0, bytes_max - len(key or b""))
    if len(value) > room:
        headers.append(("truncated.from_bytes", _text(str(len(value)))))
        key, value = (key[:room] if key is not None else None), value[:room]
    return OutgoingRecord("dead-letter", key, value, headers)


def _text(text: str) -> bytes:
    return text[:REFUSAL_TEXT_MAX].encode("utf-8", "replace")


class Publisher:
    """The worker's two producers."""

    def __init__(self, settings: Settings, changelogs: dict[str, str], partitions: dict[str, int]) -> None:
        self._settings = settings
        self._changelogs = changelogs
        self._partitions = partitions
        self._ahead_ms = 0
        self._telling = self._producer("tell")
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
        """Connect. Raises `KafkaError` where no broker answers."""
        await self._telling.start()
        await self._storing.start()

    async def stop(self) -> None:
        """Disconnect; what is under way is sent first."""
        await asyncio.gather(self._telling.stop(), self._storing.stop())

    async def tell(self, partition: int, letters: Sequence[OutgoingRecord]) -> None:
        """Publish letters, each in its partition (by default that of this lane); returns when the broker has all."""
        by_place: dict[tuple[str, int], list[OutgoingRecord]] = {}
        for letter in letters:
            by_place.setdefault(self._place(letter, partition), []).append(letter)
        posted = []
        for (topic, place), records in by_place.items():
            posted.append(
                await _post(self._telling, topic, place, [(r.key, r.value, r.headers, r.at_ms) for r in records])
            )
        for batches in posted:
            metadata = await _delivered(batches)
            if metadata is not None and metadata.timestamp_type == LOG_APPEND_TIME:
                self._ahead_ms = metadata.timestamp - _here_ms()

    def log_now_ms(self) -> int:
        """What the broker's clock says, as far as its last acknowledgement told."""
        return _here_ms() + self._ahead_ms

    def _place(self, letter: OutgoingRecord, partition: int) -> tuple[str, int]:
        topic = self._settings.topic(letter.topic)
        if letter.partition is None:
            return topic, partition % self._partitions.get(topic, partition + 1)
        if letter.partition != BY_KEY:
            return topic, letter.partition
        return topic, (murmur2(letter.key or b"") & 0x7FFFFFFF) % self._partitions[topic]

    async def store(self, table: str, partition: int, changes: Iterable[Change]) -> int | None:
        """Write states to a table's changelog; the offset of the last one (None: the broker does not say)."""
        records = [(key, raw, NO_HEADERS, None) for key, raw in changes]
        posted = await _post(self._storing, self._changelogs[table], partition, records)
        metadata = await _delivered(posted)
        if metadata is None or metadata.offset < 0:
            return None
        return int(metadata.offset) + posted[-1][1] - 1


def _here_ms() -> int:
    return int(time.time() * 1000)


Posted = list[tuple[Any, int]]
"""Batches handed over: the future of each one's acknowledgement, and how many records it has."""


async def _post(
    producer: AIOKafkaProducer,
    topic: str,
    partition: int,
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int | None]],
) -> Posted:
    """Hand records over in order, in as few batches as they fit into."""
    posted: Posted = []
    batch = producer.create_batch()
    for key, value, headers, at_ms in records:
        if batch.append(key=key, value=value, timestamp=at_ms, headers=headers) is None:
            posted.append((await _submit(producer, batch, topic, partition), batch.record_count()))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=at_ms, headers=headers)
    posted.append((await _submit(producer, batch, topic, partition), batch.record_count()))
    return posted


async def _delivered(posted: Posted) -> Any:
    """Wait until the broker has all of it; what it says of the last batch (None: it had it, and does not say)."""
    return [await future for future, _ in posted][-1]


async def _submit(producer: AIOKafkaProducer, batch: Any, topic: str, partition: int) -> Any:
    """Hand a batch over; where the queue of its partition is full, wait for it however long it takes."""
    while True:
        try:
            return await producer.send_batch(batch, topic, partition=partition)
        except KafkaTimeoutError:
            continue
