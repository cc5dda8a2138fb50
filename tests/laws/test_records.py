"""Every record is an event or is refused with a reason, and no event makes the engine raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from streamproc.core.status import encode_status
from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint import fingerprint, read_event
from streamproc.model.raw_events import parse_line, parse_raw
from streamproc.model.wire import Event, decode, encode
from tests.feeding import Feed, Raw
from tests.laws.records import fingerprinted, raw, spoilt, torn, written
from tests.laws.traces import EVENTS, LONGER, START_MS


@pytest.mark.parametrize("template", EVENTS)
def test_encoding_an_event_loses_nothing(template: Raw) -> None:
    parsed = parse_raw({"run_id": "r", "event_id": "e", "at": START_MS, **template})
    for include_content in (False, True):
        event = fingerprint(parsed, include_content=include_content)
        assert decode(encode(event)) == event
        assert encode(decode(encode(event))) == encode(event)


@given(raw)
@LONGER
def test_a_raw_record_reads_as_the_event_its_publisher_would_send(record: Raw) -> None:
    line = written(record)
    try:
        expected = fingerprint(parse_line(line))
    except InvalidEvent:
        return
    if not isinstance(record.get("w"), int):
        assert read_event(line) == expected
    assert decode(encode(expected)) == expected


def problems_of(read: Callable[[Any], Any], value: bytes | str) -> tuple[Problem, ...]:
    """Return the problems of a record; none if it is an event."""
    try:
        event = read(value)
    except InvalidEvent as refusal:
        return refusal.problems or (Problem("nothing", ""),)
    assert event.run_id
    return ()


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode) | torn | (spoilt | raw).map(written))
@LONGER
def test_bytes_are_an_event_or_are_refused_with_a_reason(value: bytes) -> None:
    text = value.decode("utf-8", "surrogateescape")
    for problem in (*problems_of(read_event, value), *problems_of(parse_line, value), *problems_of(parse_line, text)):
        assert problem.field
        assert problem.what
        assert problem.remedy
        assert len(problem.what) < 500


@given(st.binary(max_size=200) | torn | (spoilt | fingerprinted).map(written))
@LONGER
def test_the_wire_is_decoded_or_refused(value: bytes) -> None:
    try:
        event = decode(value)
    except msgspec.DecodeError:
        return
    assert isinstance(event, Event)
    assert decode(encode(event)) == event


@given(st.lists(fingerprinted, min_size=1, max_size=6), st.integers(-(10**15), 10**15) | st.none())
@LONGER
def test_no_decodable_event_makes_the_engine_raise(records: list[Raw], at_ms: int | None) -> None:
    feed = Feed()
    for record in records:
        try:
            event = decode(written(record))
        except msgspec.DecodeError:
            continue
        for _ in range(3):
            for decision in feed.event(event, at_ms):
                assert msgspec.json.encode(decision)
                assert decision.severity in ("info", "warn", "halt")
                encode_status(feed.engine.status(feed.state, "r", decision))
            feed.restart()


def test_many_of_the_drawn_records_are_events() -> None:
    """The laws above would prove little if everything were refused."""
    counted = {"decoded": 0, "read": 0, "all": 0}

    @given(fingerprinted, raw)
    @LONGER
    def count(record: Raw, other: Raw) -> None:
        counted["all"] += 1
        for name, read, value in (("decoded", decode, record), ("read", read_event, other)):
            try:
                read(written(value))
            except (msgspec.DecodeError, InvalidEvent):
                continue
            counted[name] += 1

    count()
    assert counted["decoded"] > counted["all"] / 3
    assert counted["read"] > counted["all"] / 20


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'{"w":1,"type":"turn","run_id":"r","node":"n","content":{"a":['])
def test_a_hundred_thousand_brackets_are_refused(opened: bytes) -> None:
    with pytest.raises(InvalidEvent, match=r"not JSON|more than 20000 lists"):
        read_event(opened * 100_000)
