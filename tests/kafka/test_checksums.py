"""Checksums by the processor are those of aiokafka, and a batch that is not as it was sent reaches no reader."""

from __future__ import annotations

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v10, FetchRequest_v11, FetchResponse_v11
from aiokafka.record.util import calc_crc32c
from hypothesis import given, strategies as st

from streamproc.kafka.batch_limits import UnpackBudget
from streamproc.kafka.checksums import FAST, Checksums, crc32c
from streamproc.kafka.fetch_response import QuickFetchResponse, decode_quickly
from streamproc.kafka.vendor import unpack
from tests.kafka.test_taking import batch, fetch

BATCHES = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 1, 3, 4])), min_size=1, max_size=4)


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_a_checksum_is_that_of_aiokafka(data: bytes, one: int, other: int) -> None:
    begin, end = sorted((min(one, len(data)), min(other, len(data))))
    assert crc32c(data, begin, end) == calc_crc32c(data[begin:end])


@pytest.mark.skipif(not FAST, reason="no instruction for it: aiokafka checks all batches")
@given(BATCHES, st.data())
def test_a_batch_with_any_wrong_bit_is_found_by_the_reader(shape: list[tuple[int, int]], data: st.DataObject) -> None:
    first, whole = 0, []
    for count, codec in shape:
        whole.append(batch(first, count, compression=codec))
        first += count
    records = bytearray(b"".join(whole))
    checksums = Checksums()
    UnpackBudget(checksums).unpacked(bytes(records))
    assert checksums.intact, "as they were sent"
    number = data.draw(st.integers(0, len(whole) - 1), "batch")
    begin = sum(map(len, whole[:number]))
    records[data.draw(st.integers(begin + 17, begin + len(whole[number]) - 1), "byte")] ^= 1 << data.draw(
        st.integers(0, 7)
    )

    unpacked = UnpackBudget(checksums).unpacked(bytes(records))

    assert not checksums.intact
    ours, _ = fetch(unpacked, 0)
    with pytest.raises(CorruptRecordException):
        unpack(ours, check=not checksums.intact)


def test_what_an_older_broker_sends_is_checked_by_aiokafka() -> None:
    checksums = Checksums()
    response = type("Checked", (QuickFetchResponse,), {"checksums": checksums})
    request = FetchRequest(500, 1, 1_000, 0, [("turns", [(0, 7, 100)])])
    decode_quickly(request, response)
    assert request.prepare({1: (4, 11)}).RESPONSE_TYPE is response
    broken = bytearray(batch(0, 3))
    broken[-1] ^= 1
    raw = FetchResponse_v11(0, 0, 0, [("turns", [(0, 0, 3, 3, 0, None, -1, bytes(broken))])]).encode()
    response.decode(raw)
    assert not checksums.intact
    checksums.intact = FAST
    assert request.prepare({1: (4, 10)}).RESPONSE_TYPE is FetchRequest_v10.RESPONSE_TYPE
    assert not checksums.intact
    assert FetchRequest_v11.RESPONSE_TYPE is FetchResponse_v11


def test_batches_of_an_old_format_are_checked_by_aiokafka() -> None:
    checksums = Checksums()
    old = bytearray(batch(0, 3))
    old[16] = 1
    UnpackBudget(checksums).unpacked(bytes(old))
    assert not checksums.intact
