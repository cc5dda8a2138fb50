"""`take_fetched` returns the records that aiokafka's would return."""

from __future__ import annotations

import itertools
from struct import pack_into
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from streamproc.kafka import vendor
from streamproc.kafka.vendor import UNPACK_S, take_fetched, unpack

PLACE = TopicPartition("turns", 3)
CONTROL = 0x20


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "time", SimpleNamespace(monotonic=lambda: 0.0))


def batch(first: int, count: int, *, compression: int = 0, control: bool = False) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=compression, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for number in range(count):
        key = None if number % 7 == 6 else b"run-%d" % number
        builder.append(number, 1_000 + number, key, b"value" * number, headers=[("h", b"1")] * (number % 2))
    raw = bytearray(builder.build())
    pack_into(">q", raw, 0, first)
    if control:
        raw[22] |= CONTROL
        pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
    return bytes(raw)


def fetch(raw: bytes, offset: int, isolation: int = READ_UNCOMMITTED) -> tuple[FetchResult, Any]:
    """What a fetch from `offset` brought, and the position of its partition."""
    state = SimpleNamespace(paused=False, position=offset)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment = SimpleNamespace(active=True, state_value=lambda _tp: state)
    records = PartitionRecords(PLACE, MemoryRecords(raw), [], offset, None, None, True, isolation)
    return FetchResult(PLACE, assignment=assignment, partition_records=records, backoff=0), state


def fields(records: list[Any]) -> list[tuple[Any, ...]]:
    return [(record.offset, record.timestamp, record.key, record.value) for record in records]


@pytest.mark.parametrize(("raw", "offset"), [
    (batch(0, 9), 0), (batch(40, 9) + batch(49, 1) + batch(50, 30), 44),
    (batch(0, 5) + batch(5, 1, control=True) + batch(6, 3), 0), (batch(0, 1, control=True), 0),
    (batch(0, 9, compression=1) + batch(9, 9, compression=3), 4), (b"", 17),
], ids=["one", "from the middle", "what ends a transaction", "nothing else", "compressed", "empty"])  # fmt: skip
@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_a_fetch_returns_the_same_records_and_position_as_aiokafka(raw: bytes, offset: int, isolation: int) -> None:
    plain, at_plain = fetch(raw, offset, isolation)
    ours, at_ours = fetch(raw, offset, isolation)
    assert fields(unpack(ours)) == fields(plain.getall())
    assert at_ours.position == at_plain.position
    assert ours.has_more() == plain.has_more()


def test_a_batch_with_a_wrong_checksum_does_not_move_the_position() -> None:
    broken = bytearray(batch(0, 3) + batch(3, 3))
    broken[-1] ^= 1
    ours, at = fetch(bytes(broken), 0)
    with pytest.raises(CorruptRecordException, match="turns"):
        unpack(ours)
    assert at.position == 0


def test_records_fetched_before_a_seek_are_not_returned() -> None:
    ours, at = fetch(batch(0, 3), 0)
    at.position = 2
    assert unpack(ours) == []
    assert at.position == 2


def test_a_fetch_is_unpacked_batch_by_batch_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left stays with the fetcher, which sends no further fetch for the partition."""
    ticks = itertools.count()
    monkeypatch.setattr(vendor, "time", SimpleNamespace(monotonic=lambda: next(ticks) * UNPACK_S * 0.6))
    ours, at = fetch(b"".join(batch(10 * number, 10, compression=1) for number in range(5)), 0)
    subscriptions = SimpleNamespace(is_assigned=lambda _tp: True)
    fetcher = SimpleNamespace(
        _records={PLACE: ours}, _subscriptions=subscriptions, _wait_consume_future=None, _notify=lambda _future: None
    )

    taken = []
    while fetcher._records:
        assert fetcher._records == {PLACE: ours}
        [records] = take_fetched(fetcher, {PLACE}).values()
        assert at.position == records[-1].offset + 1
        taken.append([record.offset for record in records])

    assert [len(offsets) for offsets in taken] == [20, 20, 10]
    assert [offset for offsets in taken for offset in offsets] == [*range(50)]
