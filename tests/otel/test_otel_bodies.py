"""A body of a few KB cannot fill the collector's memory, whatever it unpacks to; nor can a record of its topic."""

from __future__ import annotations

import gzip
import sys
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from streamproc.importers.genai_messages import arguments
from streamproc.model.expansion import INNER_BYTES_MAX, json_bytes, parsed
from streamproc.otel import wire_size
from streamproc.otel.decoding import EXPANDED_BYTES_MAX, TooManyValues, UnreadableSpans, encoding_of, read_spans
from streamproc.otel.receiver import BODY_BYTES_MAX
from tests.otel.otel_bodies import ATTRIBUTE, BODIES, SPAN, in_scope, of_spans, repeated, sized, tool_span
from tests.peaks import CHART_LIMIT_MB, run_python

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PEAK_MB = CHART_LIMIT_MB - 150  # room for the traces that are kept
IN_TURN = "import asyncio; from tests.otel.otel_bodies import main; asyncio.run(main())"
AS_RECORDS = """
import contextlib
from streamproc.otel.decoding import SPANS_MAX, UnreadableSpans, encoding_of, read_spans
from tests.otel.otel_bodies import BODIES, SIZE
from tests.peaks import peak_mb
for body in BODIES.values():
    value = body(SIZE)
    with contextlib.suppress(UnreadableSpans):
        spans = [span for span, _ in zip(read_spans(value, encoding_of(value)), range(SPANS_MAX))]
    print(peak_mb(), "MB", flush=True)
"""


def peak_of(lines: list[str]) -> int:
    return max(int(line.partition(" MB")[0].split()[-1]) for line in lines)


@pytest.mark.long
def test_no_body_takes_more_memory_than_a_pod_has() -> None:
    """One receiver, in a process of its own, gets all of them one after another."""
    before, *answered = run_python(IN_TURN).splitlines()
    assert len(answered) == len(BODIES)
    assert {line.split()[0] for line in answered} == {"200", "413"}
    assert peak_of([before]) < peak_of(answered) < PEAK_MB


@pytest.mark.long
def test_no_record_of_the_topic_takes_more_memory_than_a_pod_has() -> None:
    lines = run_python(AS_RECORDS).splitlines()
    assert len(lines) == len(BODIES)
    assert peak_of(lines) < PEAK_MB


def test_seven_million_empty_spans_are_refused_before_they_are_parsed() -> None:
    body = in_scope(repeated(b"\x12\x00", 14_000_000))
    assert len(gzip.compress(body, 9)) < 15_000
    with pytest.raises(TooManyValues, match="256 MB"):
        read_spans(body, "protobuf")
    with pytest.raises(TooManyValues, match="256 MB"):
        read_spans(b'{"resourceSpans":[' + b"0," * 7_000_000 + b"0]}", "json")


def test_an_ordinary_body_of_the_largest_size_is_read() -> None:
    """Spans of agents as large as they come: a conversation in JSON in each, and 16 MB of them."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": "Why does this test fail, please? " * 4}]}] * 40
    span = tool_span("gen_ai.input.messages", orjson.dumps(messages).decode())
    one = of_spans(span)
    body = of_spans(*[span] * (BODY_BYTES_MAX // len(one)))
    assert 0.9 * BODY_BYTES_MAX < len(body) < BODY_BYTES_MAX
    assert len(list(read_spans(body, "json"))) > 1_000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def fill(value: Any, given_: Any) -> None:
    if isinstance(given_, list):
        value.array_value.SetInParent()
        for one in given_:
            fill(value.array_value.values.add(), one)
    elif isinstance(given_, dict):
        value.kvlist_value.SetInParent()
        for key, one in given_.items():
            fill(value.kvlist_value.values.add(key=key).value, one)
    elif given_ is not None:
        kind = {bool: "bool", int: "int", float: "double", str: "string", bytes: "bytes"}[type(given_)]
        setattr(value, f"{kind}_value", given_)


def messages_in(message: Any) -> int:
    """Count the messages in a message, as the parser made them."""
    found = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = value if not hasattr(value, "ListFields") else [value]
            found += sum(1 + messages_in(part) for part in parts)
    return found


@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=4), st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_message_is_counted_and_no_body_that_a_program_writes_is_refused(
    spans: list[dict[str, Any]], data: st.DataObject
) -> None:
    traces = TracesData()
    for attributes in spans:
        span = traces.resource_spans.add().scope_spans.add().spans.add(name="s", end_time_unix_nano=2**60, kind=2)
        span.links.add(flags=7)
        span.status.message = "m"
        for key, value in attributes.items():
            fill(span.attributes.add(key=key).value, value)
            span.events.add(name=key).attributes.add(key=key)
    body = traces.SerializeToString()
    least = messages_in(traces) * wire_size.MESSAGE_BYTES
    assert not wire_size._walk(body, 1 << 40)
    assert least == 0 or wire_size._walk(body, least - 1)

    cut = body[: data.draw(st.integers(0, len(body)))]
    try:
        TracesData.FromString(cut)
    except Exception:  # noqa: BLE001  # whatever the parser refuses, the count may take or refuse
        return
    assert not wire_size._walk(cut, 1 << 40)


@pytest.mark.parametrize(
    "body", [b"\x0a", b"\x0a\x05", b"\x0b", b"\x0f", b"\x80" * 11, b"\x0a" + b"\xff" * 11, b"\x09\x00"]
)
def test_a_body_that_is_no_message_is_refused_by_the_count(body: bytes) -> None:
    with pytest.raises((wire_size.NotProtobuf, IndexError)):
        wire_size._walk(body, 1 << 40)
    padded = repeated(b"\x0a\x00", 2 << 20) + body
    with pytest.raises(UnreadableSpans):
        list(read_spans(padded, "protobuf"))


def test_messages_in_messages_end_with_the_parsers_own_limit() -> None:
    value = b""
    for _ in range(2_000):
        value = sized(b"\x2a", sized(b"\x0a", value))  # a list in a list
    body = in_scope(sized(SPAN, sized(ATTRIBUTE, sized(b"\x12", value))))
    with pytest.raises(wire_size.NotProtobuf):
        wire_size._walk(body, 1 << 40)
    with pytest.raises(UnreadableSpans):
        list(read_spans(body, "protobuf"))


def test_no_field_of_the_protocol_takes_more_than_the_figure_that_lets_small_bodies_pass() -> None:
    found, left = set(), [wire_size._TRACES]
    for table in left:
        for size, inner in table.values():
            found.add(size)
            if all(inner is not one for one in left):
                left.append(inner)
    assert len(left) > 8
    assert max(found) + wire_size.OTHER_FIELD_BYTES <= wire_size.LARGEST


@given(VALUES.filter(lambda value: not isinstance(value, bytes)), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_the_memory_of_a_json_text_is_an_upper_bound_wherever_the_values_stand(value: Any, quoted: int) -> None:
    text = orjson.dumps([value] * 50, default=repr).decode()
    whole, known = orjson.loads(text), set()
    taken, left = 0, [whole]
    for one in left:
        if id(one) not in known:
            known.add(id(one))
            taken += sys.getsizeof(one)
            left += [*one.keys(), *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
    for _ in range(quoted):
        text = orjson.dumps(text).decode()
    assert json_bytes(text) >= taken


def test_json_in_a_text_that_would_take_too_much_stays_a_text() -> None:
    text = "[" + "0," * (INNER_BYTES_MAX // 100) + "0]"
    assert parsed(text) is text
    assert arguments(text) is text
    assert parsed("[" + "0," * 1_000 + "0]") == [0] * 1_001


@pytest.mark.parametrize("literal", ["{'a': (1, -2.5e-3), 'b': [True, None, \"it's\"]}", "[1+2j, b'x']"])
def test_a_value_as_python_shows_it_is_still_read(literal: str) -> None:
    assert not isinstance(arguments(literal), str)


@pytest.mark.parametrize("sum_", ["1+1", "1-1", "1*1", "1|1", "f(1)", "1 if 1 else 1", "1<1", "a.a", "~1"])
def test_what_only_computes_a_value_is_not_parsed(sum_: str) -> None:
    text = f"[{sum_[0]}{sum_[1:] * 3}]"
    assert arguments(text) is text


def test_the_encoding_of_a_record_is_told_by_its_first_byte() -> None:
    assert encoding_of(b' {"resourceSpans":[]}') == "json"
    assert encoding_of(b"\x0a\x00") == "protobuf"
    assert EXPANDED_BYTES_MAX >> 20 < CHART_LIMIT_MB
