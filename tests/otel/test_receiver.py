"""OTLP/HTTP on loopback: the real SDK and exporter, and everything that is no OTLP."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from streamproc.importers import otlp
from streamproc.model.raw_events import parse_raw
from streamproc.otel import AssemblyLimits, UnreadableSpans, read_spans, receiver
from streamproc.otel.decoding import unpacked
from tests.importers.reading import SAMPLES, calls_of, halt_codes
from tests.importers.traces import agent_span, export, tool_span
from tests.otel.conftest import Served
from tests.waiting import until

JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
QUERY = {"query": "bikes"}


def agent(exporter: SpanExporter, results: list[str]) -> None:
    """Run an agent that asks a model and calls a tool for each result, traced by the real SDK."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span("invoke_agent buyer") as outer:
        outer.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "buyer"})
        for number, result in enumerate(results):
            ids = {"gen_ai.conversation.id": "chat-1", "gen_ai.agent.name": "buyer"}
            with tracer.start_as_current_span("chat gpt-5") as model:
                model.set_attributes(ids | {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 100})
                call = {"type": "tool_call", "id": f"c{number}", "name": "search", "arguments": QUERY}
                answer = json.dumps([{"role": "assistant", "parts": [call]}])
                model.set_attribute("gen_ai.output.messages", answer)
            with tracer.start_as_current_span("execute_tool search") as tool:
                tool.set_attributes(ids | {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"})
                tool.set_attribute("gen_ai.tool.call.id", f"c{number}")
                tool.set_attribute("gen_ai.tool.call.arguments", json.dumps(QUERY))
                tool.set_attribute("gen_ai.tool.call.result", result)
    provider.shutdown()


def protobuf_of(rows: dict[str, Any]) -> bytes:
    """Return OTLP/JSON as protobuf, by the package that exporters use."""
    request = ExportTraceServiceRequest()
    for resource_spans in rows["resourceSpans"]:
        into = request.resource_spans.add().scope_spans.add()
        for scope_spans in resource_spans["scopeSpans"]:
            for row in scope_spans["spans"]:
                span = into.spans.add(name=row["name"], kind=row["kind"], trace_id=bytes.fromhex(row["traceId"]))
                span.span_id = bytes.fromhex(row["spanId"])
                span.parent_span_id = bytes.fromhex(row.get("parentSpanId", ""))
                span.start_time_unix_nano = int(row["startTimeUnixNano"])
                span.end_time_unix_nano = int(row["endTimeUnixNano"])
                for one in row["attributes"]:
                    span.attributes.add(key=one["key"]).value.string_value = one["value"].get("stringValue", "")
    return request.SerializeToString()


SPANS = export(tool_span(1, QUERY, "nothing", parent=2), agent_span(2))


async def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, Any]:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/traces", data=body, headers=headers) as got:
        return got.status, await got.read(), got.headers


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_an_agent_that_the_real_sdk_traces_is_halted(served: Served, compression: Compression) -> None:
    exporter = OTLPSpanExporter(f"{served.url}/v1/traces", compression=compression)
    await asyncio.to_thread(agent, exporter, ["nothing"] * 3)
    await until(lambda: len(served.turns.events) >= 3)
    turns = [event for event in served.turns.events if event.get("type", "turn") == "turn"]
    assert [(turn["run_id"], turn["node"], turn["usage"]["input_tokens"]) for turn in turns] == [
        ("chat-1", "buyer", 100)
    ] * 3
    assert [call["result"] for call in calls_of(turns)] == ["nothing"] * 3
    assert halt_codes(served.turns.events) == ["LOOP003"]


async def test_an_honest_agent_is_not_halted(served: Served) -> None:
    results = [f"bike {number}" for number in range(10)]
    await asyncio.to_thread(agent, OTLPSpanExporter(f"{served.url}/v1/traces"), results)
    await until(lambda: len(calls_of(served.turns.events)) >= 10)
    assert halt_codes(served.turns.events) == []


@pytest.mark.parametrize("pack", [False, True])
async def test_json_and_protobuf_are_the_same_turns(served: Served, pack: bool) -> None:
    found = []
    for body, headers in ((json.dumps(SPANS).encode(), JSON), (protobuf_of(SPANS), PROTOBUF)):
        headers = headers | ({"Content-Encoding": "gzip"} if pack else {})
        status, answer, got = await post(served.url, gzip.compress(body) if pack else body, headers)
        assert (status, got["Content-Type"]) == (200, headers["Content-Type"])
        assert answer in (b"", b"{}")
        await until(lambda: served.turns.events)
        found.append(list(served.turns.events))
        served.turns.events.clear()
        await asyncio.to_thread(lambda: served.bridge.assembly.flush(0))  # forgets the trace
    assert [event["tool_calls"] for event in found[0] if "tool_calls" in event] == [
        event["tool_calls"] for event in found[1] if "tool_calls" in event
    ]
    assert len(found[0]) == len(found[1]) == 2


BAD: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "no protobuf": (b"\xff\xff\xff", PROTOBUF, 400, "not an ExportTraceServiceRequest in protobuf"),
    "no JSON": (b"{", JSON, 400, "not valid JSON (line 1"),
    "a JSON list": (b"[]", JSON, 400, "resourceSpans is no list"),
    "another JSON": (b'{"resourceSpans": 7}', JSON, 400, "resourceSpans is no list"),
    "deep JSON": (b"[" * 100_000, JSON, 400, "not valid JSON"),
    "no UTF-8": (b'{"a": "\xff"}', JSON, 400, "not valid JSON"),
    "no gzip": (b"{}", JSON | {"Content-Encoding": "gzip"}, 400, "not valid gzip"),
    "cut gzip": (gzip.compress(b"{}")[:-3], JSON | {"Content-Encoding": "gzip"}, 400, "cut off"),
    "another encoding": (b"{}", JSON | {"Content-Encoding": "br"}, 415, "gzip, or absent"),
    "another type": (b"{}", {"Content-Type": "text/plain"}, 415, "application/x-protobuf, application/json"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_otlp_is_refused_with_a_sentence(served: Served, case: str) -> None:
    body, headers, status, sentence = BAD[case]
    got, answer, _ = await post(served.url, body, headers)
    assert got == status
    assert sentence in answer.decode()
    assert (await post(served.url, json.dumps(SPANS).encode(), JSON))[0] == 200


async def test_spans_that_cannot_be_used_are_a_partial_success(served: Served) -> None:
    never = tool_span(1, QUERY, "nothing")
    never["endTimeUnixNano"] = "0"
    rows = export(never, tool_span(2, QUERY, "nothing", trace="12"), tool_span(3, QUERY, "nothing"))
    status, answer, _ = await post(served.url, json.dumps(rows).encode(), JSON)
    assert status == 200
    assert json.loads(answer)["partialSuccess"] == {
        "rejectedSpans": "2",
        "errorMessage": "a span of an agent has no end time",
    }
    rows = export(tool_span(4, QUERY, "nothing", trace="12"))
    _, answer, _ = await post(served.url, protobuf_of(rows), PROTOBUF)
    assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 1


async def test_a_request_with_too_many_spans_is_taken_in_part(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "SPANS_MAX", 3)
    rows = export(*[tool_span(number, QUERY, str(number)) for number in range(1, 6)])
    _, answer, _ = await post(served.url, json.dumps(rows).encode(), JSON)
    assert json.loads(answer)["partialSuccess"]["rejectedSpans"] == "2"


async def test_a_large_body_and_a_gzip_bomb_are_refused() -> None:
    served = Served(AssemblyLimits(), body_bytes_max=100_000)
    await served.start()
    try:
        large = b" " * 100_001
        for body, headers in ((large, JSON), (gzip.compress(large * 100), JSON | {"Content-Encoding": "gzip"})):
            status, answer, _ = await post(served.url, body, headers)
            assert (status, b"more than 100000 bytes" in answer) == (413, True)
    finally:
        await served.stop()


def test_no_more_than_the_limit_is_unpacked() -> None:
    assert unpacked(gzip.compress(b"x" * 1000), 1000) == b"x" * 1000
    with pytest.raises(OverflowError):
        unpacked(gzip.compress(b"x" * 1001), 1000)
    with pytest.raises(UnreadableSpans, match="more behind its end"):
        unpacked(gzip.compress(b"{}") + b"more", 1000)


@pytest.fixture
async def guarded() -> AsyncIterator[Served]:
    found = Served(AssemblyLimits(reorder_s=0), token="s3cret-token")
    await found.start()
    yield found
    await found.stop()


async def test_a_token_is_asked_for(guarded: Served) -> None:
    body = json.dumps(SPANS).encode()
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret-token"}):
        status, answer, got = await post(guarded.url, body, JSON | headers)
        assert (status, got["WWW-Authenticate"]) == (401, "Bearer")
        assert b"s3cret" not in answer
    assert guarded.bridge.counts["received"] == 0
    assert (await post(guarded.url, body, JSON | {"Authorization": "Bearer s3cret-token"}))[0] == 200


async def test_while_turns_are_not_delivered_exporters_are_told_to_wait(served: Served) -> None:
    async def health() -> int:
        async with aiohttp.ClientSession() as session, session.get(f"{served.url}/healthz") as got:
            return got.status

    assert await health() == 200
    served.turns.waiting = 9_000
    status, _, got = await post(served.url, json.dumps(SPANS).encode(), JSON)
    assert (status, got["Retry-After"]) == (503, "5")
    assert await health() == 503
    served.turns.waiting, served.turns.trouble = 0, OSError()
    assert await health() == 503


async def test_what_cannot_be_seen_is_said_once_and_without_content(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for trace in range(1, 4):
        rows = export(
            tool_span(1, None, None, "secret-tool", parent=2, trace=f"{trace:032x}"),
            agent_span(2, "secret-agent", trace=f"{trace:032x}"),
        )
        await post(served.url, json.dumps(rows).encode(), JSON)
    await until(lambda: served.bridge.counts["published"] == 6, what="the turns of all traces are published")
    assert caplog.text.count("no results of tools") == 1
    assert "secret" not in caplog.text


async def test_spans_of_no_agent_are_ignored(served: Served) -> None:
    rows = {"resourceSpans": [{"scopeSpans": [{"spans": [{**tool_span(1, None, None), "attributes": []}]}]}]}
    await post(served.url, json.dumps(rows).encode(), JSON)
    assert (served.bridge.counts["ignored"], len(served.bridge.assembly)) == (1, 0)


SEEDS: tuple[tuple[bytes, Any], ...] = (
    (json.dumps(SPANS).encode(), "json"),
    (protobuf_of(SPANS), "protobuf"),
    (next(SAMPLES.glob("otlp/*.json*")).read_bytes()[:100_000].splitlines()[0], "json"),
)


def mutated(body: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    for place, text in edits:
        place %= len(body) + 1
        body = body[:place] + text + body[place + len(text) // 2 :]
    return body


EDITS = st.lists(st.tuples(st.integers(0, 2**20), st.binary(max_size=8)), min_size=1, max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def check(body: bytes, encoding: Any) -> None:
    """Read a body, and check that what comes of it are valid raw events."""
    served = Served(AssemblyLimits(reorder_s=0))
    try:
        spans = list(read_spans(body, encoding))
    except UnreadableSpans:
        return
    asyncio.run(served.bridge.take(spans))
    asyncio.run(served.bridge.flush())
    for event in served.turns.events:
        assert parse_raw(event).unknown_fields == ()


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.sampled_from(SEEDS), edits=EDITS)
def test_mutated_bodies_never_crash(seed: tuple[bytes, Any], edits: list[tuple[int, bytes]]) -> None:
    check(mutated(seed[0], edits), seed[1])


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), value=VALUES)
def test_a_value_of_any_shape_anywhere_never_crashes(data: st.DataObject, value: Any) -> None:
    rows = json.loads(json.dumps(SPANS))
    places: list[tuple[Any, Any]] = []
    collect(rows, places)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = value
    check(json.dumps(rows).encode(), "json")


def collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        places.append((value, key))
        collect(value[key], places)


def test_protobuf_and_json_of_all_samples_are_read_alike() -> None:
    assert [span.attributes for span in read_spans(protobuf_of(SPANS), "protobuf")] == [
        span.attributes for span in otlp.spans_of(SPANS)
    ]
