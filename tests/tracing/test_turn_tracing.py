"""`streamproc worker --trace-sample`: which spans a slice of turns gets, and what they cost when there are none."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from streamproc.errors import InvalidSettings
from streamproc.settings import Settings, load_settings
from streamproc.worker.publishing import OutgoingRecord
from streamproc.worker.turn_tracing import LINKS_MAX, SLICES_MAX, SPANS_MAX, TurnTracing, spans_request, tracing_turns
from tests.metrics.test_otlp import Receiver
from tests.notify.test_on_kafka import Start, settings, start
from tests.waiting import until
from tests.worker.records import NOON_MS, Record, records_of
from tests.worker.running import Topics, expected_ids, gather_controls, looping_run

__all__ = ["settings", "start"]  # fixtures

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON_NS = NOON_MS * 1_000_000
MS_NS = 1_000_000


def tracing() -> TurnTracing:
    return TurnTracing(Settings.model_construct(trace_sample=1.0))


def control(offset: int) -> OutgoingRecord:
    return OutgoingRecord("control", b"r", b"{}", offset=offset)


def records(count: int, first: int = 0, **fields: Any) -> list[Record]:
    return [one._replace(**fields) for one in records_of([(b"r", b"{}")] * count, first=first)]


def test_a_slice_is_received_processed_and_its_decisions_are_sent() -> None:
    made = tracing()
    traced = records(3, first=40, headers=(("traceparent", TRACE.encode()),))
    made.processed(2, traced, NOON_NS + 9 * MS_NS, NOON_NS + 12 * MS_NS, 4)
    slices = made.sending(2, [control(42), OutgoingRecord("runs", b"r", b"{}", offset=42), control(41), control(43)])
    made.sent(2, slices, NOON_NS + 13 * MS_NS, NOON_NS + 15 * MS_NS)
    receive, process, send = spans = made.take()
    assert [one.name for one in spans] == ["turns receive", "turns process", "control send"]
    assert len({one.trace_id for one in spans}) == 1
    assert [one.parent_id for one in spans] == [b"", receive.span_id, process.span_id]
    starts_ms = [(one.start_ns - NOON_NS) / MS_NS for one in spans]
    ends_ms = [(one.end_ns - NOON_NS) / MS_NS for one in spans]
    assert (starts_ms, ends_ms) == ([-4, 9, 13], [9, 12, 15])  # the broker's clock is 4 ms ahead
    assert process.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "streamproc.turns",
        "messaging.destination.partition.id": "2",
        "messaging.batch.message_count": 3,
        "messaging.consumer.group.name": "streamproc-worker",
        "messaging.kafka.offset": 40,
    }
    assert send.attributes["messaging.destination.name"] == "streamproc.control"
    assert send.attributes["messaging.batch.message_count"] == 2
    assert (receive.links, send.links) == ([TRACE] * 3, ())
    assert made.take() == []


def test_decisions_of_other_slices_and_partitions_are_not_traced() -> None:
    made = tracing()
    made.processed(0, records(3), NOON_NS, NOON_NS, 0)
    assert made.sending(1, [control(1)]) == Counter()
    assert made.sending(0, [control(3)]) == Counter()
    slices = made.sending(0, [control(2)])
    made.sent(0, slices, 1, 2)
    made.sent(0, slices, 1, 2)  # a slice that is no longer known
    assert made.sending(0, [control(2)]) == Counter()


def test_a_time_that_is_not_the_brokers_says_nothing_about_waiting() -> None:
    made = tracing()
    for fields in ({"timestamp": NOON_MS - 9, "timestamp_type": 0}, {"timestamp": None}, {"timestamp": NOON_MS + 9}):
        made.processed(0, records(1, **fields), NOON_NS, NOON_NS, 0)
    assert {(one.start_ns, one.end_ns) for one in made.take()} == {(NOON_NS, NOON_NS)}


def test_it_is_bounded() -> None:
    made = tracing()
    for first in range(0, 3_000, 3):
        made.processed(0, records(3, first=first), NOON_NS, NOON_NS, 0)
    assert len(made._slices) == SLICES_MAX
    assert not made.sending(0, [control(0)])
    many = records(1_000, headers=(("traceparent", TRACE.encode()), ("traceparent", b"x" * 55)))
    for _ in range(SPANS_MAX):
        made.processed(0, many, NOON_NS, NOON_NS, 0)
    spans = made.take()
    assert (len(spans), len(spans[-1].links)) == (SPANS_MAX, LINKS_MAX)


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.25, 400, 600), (1.0, 2_000, 2_000)])
def test_the_share_of_slices_is_the_one_asked_for(share: float, least: int, most: int) -> None:
    made = TurnTracing(Settings.model_construct(trace_sample=share))
    assert least <= sum(made.chooses() for _ in range(2_000)) <= most


def test_a_request_is_read_by_opentelemetrys_own_types() -> None:
    made = tracing()
    made.processed(0, records(1, headers=(("traceparent", TRACE.encode()),)), NOON_NS, NOON_NS, 0)
    made.sent(0, made.sending(0, [control(0)]), 1, 2)
    request = ExportTraceServiceRequest.FromString(spans_request(made.take(), {"service.name": "streamproc"}))
    [of_resource] = request.resource_spans
    assert [(one.key, one.value.string_value) for one in of_resource.resource.attributes] == [
        ("service.name", "streamproc")
    ]
    [scope] = of_resource.scope_spans
    receive, process, send = scope.spans
    assert [one.kind for one in scope.spans] == [
        Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_CONSUMER, Span.SPAN_KIND_PRODUCER,
    ]  # fmt: skip
    assert (process.parent_span_id, send.parent_span_id) == (receive.span_id, process.span_id)
    [link] = process.links
    assert (link.trace_id.hex(), link.span_id.hex(), link.flags) == (TRACE[3:35], TRACE[36:52], 1)


async def test_a_share_without_a_destination_is_an_error_that_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidSettings, match=r"--trace-sample.*OTEL_EXPORTER_OTLP_ENDPOINT.*streamproc\[otel\]"):
        await tracing_turns(load_settings(trace_sample=0.5)).__aenter__()
    async with tracing_turns(load_settings()) as made:
        assert made is None
    monkeypatch.setenv("STREAMPROC_TRACE_SAMPLE", "1.5")
    with pytest.raises(InvalidSettings, match="STREAMPROC_TRACE_SAMPLE"):
        load_settings()


class SpanReceiver(Receiver):
    """An OTLP/HTTP receiver of spans."""

    signal, request_type = "traces", ExportTraceServiceRequest

    @property
    def spans(self) -> list[Any]:
        return [span for one in self.requests for group in one.resource_spans[0].scope_spans for span in group.spans]


@pytest.fixture
async def receiver() -> AsyncIterator[SpanReceiver]:
    found = SpanReceiver()
    yield found
    await found.stop()


async def test_spans_are_sent_at_intervals_and_at_a_stop(
    receiver: SpanReceiver, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", await receiver.start())
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    async with tracing_turns(load_settings(trace_sample=1)) as made:
        made.processed(0, records(1), NOON_NS, NOON_NS, 0)
        await until(lambda: len(receiver.spans) == 2, what="the spans")
        made.processed(0, records(1), NOON_NS, NOON_NS, 0)
    assert len(receiver.spans) == 4


@pytest.mark.parametrize("path", ["batch", "stock"])
async def test_a_worker_sends_spans_of_what_it_does(
    settings: Settings, start: Start, receiver: SpanReceiver, path: str
) -> None:
    url = await receiver.start()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    if path == "stock":
        worker = start("--trace-sample", 1, module="benchmarks.stock_path", **variables)
    else:
        worker = start("worker", "--trace-sample", 1, **variables)
    await until(lambda: worker.logged("ready partitions="), 90)
    topics, began_ns = Topics(settings), time.time_ns()
    turns = looping_run("r")
    await topics.send(turns, headers=[("traceparent", TRACE.encode())])
    await gather_controls(topics, expected_ids(turns))
    await until(lambda: any(span.name == "control send" for span in receiver.spans), 30, "spans")
    assert await asyncio.to_thread(worker.end) == 0
    by_id = {span.span_id: span for span in receiver.spans}
    send = [span for span in receiver.spans if span.name == "control send"][-1]
    process = by_id[send.parent_span_id]
    receive = by_id[process.parent_span_id]
    assert (receive.name, process.name, receive.parent_span_id) == ("turns receive", "turns process", b"")
    assert began_ns - MS_NS < receive.start_time_unix_nano <= receive.end_time_unix_nano
    assert receive.end_time_unix_nano == process.start_time_unix_nano <= process.end_time_unix_nano
    assert process.start_time_unix_nano <= send.start_time_unix_nano <= send.end_time_unix_nano
    assert {link.trace_id.hex() for link in process.links} == {TRACE[3:35]}
