"""Compressed batches: what they hold arrives, and none unpacks without end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import given, strategies as st

from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.batch_limits import BATCH_BYTES_MAX, RESPONSE_BYTES_MAX, UnpackBudget
from streamproc.kafka.follow import Follower, Topic
from streamproc.kafka.reading import open_topic
from streamproc.kafka.session import Outage
from tests.peaks import CHART_LIMIT_MB, peak_mb
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, looping_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.kafka.follow import Batches
    from tests.worker.running import WorkerProcess


log = logging.getLogger(__name__)
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EVENTS = st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=60)), min_size=1, max_size=9)


def batch(codec: int, *events: tuple[bytes | None, bytes], first: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for number, (key, value) in enumerate(events):
        builder.append(number, 1_700_000_000_000 + number, key, value, [])
    made = bytearray(builder.build())
    made[:8] = first.to_bytes(8, "big")
    return bytes(made)


def repacked(made: bytes, content: bytes) -> bytes:
    """The batch with other bytes behind its head, and the checksum that belongs to them."""
    head = bytearray(made[:61])
    head[8:12] = (49 + len(content)).to_bytes(4, "big")
    head[17:21] = calc_crc32c(bytes(head[21:]) + content).to_bytes(4, "big")
    return bytes(head) + content


def read(records: bytes) -> list[tuple[Any, ...]]:
    """All records as aiokafka reads them; it takes no batch whose checksum is wrong."""
    found, batches = [], MemoryRecords(records)
    while batches.has_next():
        one = batches.next_batch()
        assert one.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in one]
    return found


@given(st.lists(st.tuples(st.sampled_from([0, *CODECS.values()]), EVENTS), max_size=6), st.integers(0, 70))
def test_what_compressed_batches_hold_arrives(batches: list[tuple[int, Any]], cut: int) -> None:
    first, whole = 0, []
    for codec, events in batches:
        whole.append(batch(codec, *events, first=first))
        first += len(events)
    records = b"".join(whole)
    assert read(UnpackBudget().unpacked(records)) == read(records)
    rest = UnpackBudget().unpacked(records[: -cut or None])  # brokers cut off the last batch
    assert read(rest) == read(records)[: len(read(rest))]


def test_without_compression_nothing_is_copied() -> None:
    records = batch(0, (b"a", b"1")) * 3
    assert UnpackBudget().unpacked(records) is records


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unpacks_without_end_is_replaced_by_a_record_that_says_so(codec: str) -> None:
    zeros = b"\0" * (BATCH_BYTES_MAX + 1)
    pack = {"gzip": gzip_encode, "snappy": snappy_encode, "lz4": lz4_encode, "zstd": zstd_encode}[codec]
    bomb = repacked(batch(CODECS[codec], *[(b"k", b"v" * 99)] * 5, first=7), pack(zeros))
    found = read(UnpackBudget().unpacked(batch(0, *[(b"a", b"1")] * 7) + bomb + batch(4, (b"b", b"2" * 99), first=12)))
    assert [(offset, value) for offset, _, _, value in found[7:]] == [
        (11, b"a compressed batch of 5 records unpacks to more than 32 MiB"), (12, b"2" * 99),
    ]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_cannot_be_unpacked_is_replaced_too(codec: str) -> None:
    broken = repacked(batch(CODECS[codec], (b"k", b"v" * 99)), b"\x05\xff")
    [(offset, *_, value)] = read(UnpackBudget().unpacked(broken))
    assert offset == 0
    assert value.startswith(b"a compressed batch of 1 records cannot be unpacked")


def test_a_response_unpacks_to_a_limited_size_and_each_fetch_advances() -> None:
    half = repacked(batch(4, (b"k", b"v" * 99)), zstd_encode(b"\0" * BATCH_BYTES_MAX))
    budget = UnpackBudget()
    assert RESPONSE_BYTES_MAX == 2 * BATCH_BYTES_MAX
    assert len(budget.unpacked(batch(0, (b"a", b"1")) + half * 4)) < 2.01 * BATCH_BYTES_MAX
    assert budget.unpacked(half) == b""  # of another partition: it is fetched again
    assert read(budget.unpacked(batch(0, (b"a", b"1")))) != []


def test_a_wrong_checksum_is_left_to_aiokafka() -> None:
    broken = bytearray(batch(1, (b"k", b"v" * 99)))
    broken[-3] ^= 1
    assert UnpackBudget().unpacked(bytes(broken)) == broken


@pytest.mark.kafka
async def test_a_worker_lays_a_batch_of_half_a_gigabyte_aside_and_goes_on(
    brokers: str, topic_prefix: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    settings = settings_for(brokers, topic_prefix, partitions=1)
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    worker = start_worker(settings)
    await worker.ready()
    await topics.send(looping_run("before", 4))
    producer = AIOKafkaProducer(bootstrap_servers=brokers, compression_type="zstd", max_request_size=1 << 30)
    async with producer:
        await producer.send_and_wait(settings.topic("turns"), b"\0" * (512 << 20), key=b"bomb")
    await topics.send(looping_run("behind", 4))

    async def halted() -> bool:
        return {one["run_id"] for one in await topics.controls() if one["severity"] == "halt"} == {"before", "behind"}

    await until(halted, 60, "the run behind the batch to be halted", every_s=0.2)
    [dead] = await topics.read("dead-letter")
    assert dead.value == b"a compressed batch of 1 records unpacks to more than 32 MiB"
    seen: list[bytes | None] = []

    async def see(batches: Batches) -> None:
        seen.extend(record.value for records in batches.values() for record in records)

    follower = Follower(settings, [Topic(settings.topic("turns"))], see, Outage(log, "testing", "reads not", "reads"))
    following = asyncio.create_task(follower.run())
    await until(lambda: follower.caught_up, 60)
    following.cancel()
    async with open_topic(settings, "turns") as reader:
        read_back = [record.value async for batch in reader.batches() for record in batch]
    assert dead.value in seen
    assert dead.value in read_back
    assert peak_mb(worker.pid) < CHART_LIMIT_MB
