"""Fetch responses are decoded to what aiokafka decodes."""

from __future__ import annotations

from io import BytesIO
from struct import error as StructError  # noqa: N812 (it is a class)

import pytest
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v10, FetchRequest_v11, FetchResponse_v11
from hypothesis import given, strategies as st

from streamproc.kafka.fetch_response import QuickFetchResponse, decode_quickly

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
PARTITIONS = st.tuples(
    INT32, INT16, INT64, INT64, INT64, st.none() | st.lists(st.tuples(INT64, INT64), max_size=3), INT32,
    st.none() | st.binary(max_size=40),
)  # fmt: skip
TOPICS = st.lists(st.tuples(st.text(max_size=12), st.lists(PARTITIONS, max_size=4)), max_size=4)


@given(INT32, INT16, INT32, TOPICS, st.binary(max_size=8))
def test_a_response_is_decoded_as_by_aiokafka(
    throttle: int, error: int, session: int, topics: list, head: bytes
) -> None:
    raw = FetchResponse_v11(throttle, error, session, topics).encode()
    plain = FetchResponse_v11.decode(raw)
    assert vars(QuickFetchResponse.decode(raw)) == vars(plain)
    frame = BytesIO(head + raw)  # a frame, of which the header was read
    frame.seek(len(head))
    assert vars(QuickFetchResponse.decode(frame)) == vars(plain)


@given(st.lists(st.tuples(st.text(max_size=12), st.lists(PARTITIONS, min_size=1, max_size=4)), min_size=1, max_size=4))
def test_a_response_that_is_cut_off_is_an_error(topics: list) -> None:
    raw = FetchResponse_v11(0, 0, 0, topics).encode()
    for end in range(len(raw)):
        with pytest.raises((ValueError, StructError)):
            QuickFetchResponse.decode(raw[:end])


def test_only_the_version_that_is_known_is_decoded_here() -> None:
    request = FetchRequest(500, 1, 1_000, 0, [("turns", [(0, 7, 100)])])
    as_before = request.build(FetchRequest_v11).encode()
    decode_quickly(request)
    assert request.prepare({1: (4, 17)}).RESPONSE_TYPE is QuickFetchResponse
    assert request.prepare({1: (4, 17)}).encode() == as_before
    assert request.prepare({1: (4, 10)}).RESPONSE_TYPE is FetchRequest_v10.RESPONSE_TYPE
