"""Spans of a share of the slices of turns (`--trace-sample`), for people who look for the cause of a delay.

A sampled slice is a trace of its own, by OpenTelemetry's conventions for messaging, and links the spans in which its
turns were published:

    turns receive      from the moment at which the broker has the first turn until the worker processes it
    └ turns process    all turns of the slice
      └ control send   its decisions, if it has any, until the broker has acknowledged them

Without `--trace-sample` none of this is in the way of a turn: the worker uses the plain classes.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from streamproc.errors import InvalidSettings
from streamproc.metrics.otlp_sending import otlp_attributes, sending_by_otlp
from streamproc.metrics.otlp_target import otlp_target
from streamproc.settings import Settings
from streamproc.tracing.trace_context import TURN_HEADER, find_traceparent, split_traceparent
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.publishing import OutgoingRecord, Publisher
from streamproc.worker.records import Fetched

SCOPE: Final = "streamproc"
KINDS: Final = {"receive": 3, "send": 4, "process": 5}  # client, producer and consumer, in OTLP's numbers

Attributes = dict[str, str | int]

SPANS_MAX: Final = 2_048  # that wait for the endpoint; the oldest go first
LINKS_MAX: Final = 32  # of a slice of up to 1 000 turns
SLICES_MAX: Final = 64  # sampled ones whose decisions may still be on their way
NS_OF_MS: Final = 1_000_000
FROM_BROKER: Final = 1  # the type of a timestamp: LogAppendTime


class SentSpan(NamedTuple):
    """A span of a messaging operation, the last word of its name. Ids are 16 and 8 bytes (no parent: none), times epoch
    nanoseconds, links `traceparent` texts."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start_ns: int
    end_ns: int
    attributes: Attributes
    links: Sequence[str] = ()


def spans_request(spans: Iterable[SentSpan], resource: Mapping[str, str]) -> bytes:
    """Return spans as one encoded request, without OpenTelemetry's SDK. Needs the extra ``otel``."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(otlp_attributes(resource))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = SCOPE
    for one in spans:
        span = of_scope.spans.add(
            name=one.name,
            trace_id=one.trace_id,
            span_id=one.span_id,
            parent_span_id=one.parent_id,
            kind=KINDS[one.name.rpartition(" ")[2]],
            start_time_unix_nano=one.start_ns,
            end_time_unix_nano=one.end_ns,
            attributes=otlp_attributes(one.attributes),
        )
        for link in map(split_traceparent, one.links):
            span.links.add(trace_id=bytes.fromhex(link.trace_id), span_id=bytes.fromhex(link.span_id), flags=link.flags)
    return request.SerializeToString()


class SampledSlice(NamedTuple):
    """A slice that was processed: its place, and the ids of its trace and of the span that processed it."""

    partition: int
    first: int
    last: int
    trace_id: bytes
    span_id: bytes


class TurnTracing:
    """Chooses slices, and keeps their spans until `take`."""

    def __init__(self, settings: Settings) -> None:
        self._sample = settings.trace_sample
        self._topics = {role: settings.topic(role) for role in ("turns", "control")}
        self._group = settings.worker_group
        self._spans: deque[SentSpan] = deque(maxlen=SPANS_MAX)
        self._slices: deque[SampledSlice] = deque(maxlen=SLICES_MAX)

    def chooses(self) -> bool:
        """Return whether to trace the next slice."""
        return random.random() < self._sample

    def take(self) -> list[SentSpan]:
        """Return the spans that have ended since the last call."""
        spans = list(self._spans)
        self._spans.clear()
        return spans

    def processed(
        self, partition: int, records: Sequence[Fetched], began_ns: int, ended_ns: int, ahead_ms: int
    ) -> None:
        """Note a slice that was processed. `ahead_ms` is how far the broker's clock is ahead of this machine's."""
        first = records[0]
        appended_ns = began_ns
        if first.timestamp is not None and first.timestamp_type == FROM_BROKER:
            appended_ns = min(began_ns, max(0, first.timestamp - ahead_ms) * NS_OF_MS)
        trace_id, receive_id, process_id = os.urandom(16), os.urandom(8), os.urandom(8)
        links = [found for record in records if (found := find_traceparent(record.headers, TURN_HEADER))][:LINKS_MAX]
        shared: Attributes = {"messaging.consumer.group.name": self._group, "messaging.kafka.offset": first.offset}
        for name, span_id, parent_id, start_ns, end_ns in (
            ("receive", receive_id, b"", appended_ns, began_ns),
            ("process", process_id, receive_id, began_ns, ended_ns),
        ):
            attributes = self._attributes("turns", name, partition, len(records)) | shared
            self._add(f"turns {name}", (trace_id, span_id, parent_id), (start_ns, end_ns), attributes, links)
        self._slices.append(SampledSlice(partition, first.offset, records[-1].offset, trace_id, process_id))

    def sending(self, partition: int, outgoing: Sequence[OutgoingRecord]) -> Counter[SampledSlice]:
        """Return the sampled slices that these records contain decisions of, and how many of each."""
        found: Counter[SampledSlice] = Counter()
        if self._slices:
            mine = [one for one in self._slices if one.partition == partition]
            for record in outgoing:
                if record.topic == "control":
                    found.update(one for one in mine if one.first <= record.offset <= one.last)
        return found

    def sent(self, partition: int, slices: Counter[SampledSlice], began_ns: int, ended_ns: int) -> None:
        """Note that the broker has acknowledged the decisions of these slices."""
        for one, count in slices.items():
            ids = one.trace_id, os.urandom(8), one.span_id
            self._add("control send", ids, (began_ns, ended_ns), self._attributes("control", "send", partition, count))
            if one in self._slices:
                self._slices.remove(one)

    def _attributes(self, role: str, operation: str, partition: int, count: int) -> Attributes:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": self._topics[role],
            "messaging.destination.partition.id": str(partition),
            "messaging.batch.message_count": count,
        }

    def _add(
        self,
        name: str,
        ids: tuple[bytes, bytes, bytes],
        times_ns: tuple[int, int],
        attributes: Attributes,
        links: Sequence[str] = (),
    ) -> None:
        self._spans.append(SentSpan(name, *ids, *times_ns, attributes, links))


class TracedPipelines(PartitionPipelines):
    """Pipelines of which some slices are traced."""

    def __init__(self, tracing: TurnTracing, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracing = tracing

    def accept(self, partition: int, records: Sequence[Fetched]) -> int:
        """Process records, as the plain pipelines do."""
        if not self._tracing.chooses():
            return super().accept(partition, records)
        began_ns = time.time_ns()
        taken = super().accept(partition, records)
        ended_ns = time.time_ns()
        ahead_ms = self._publisher.log_now_ms() - ended_ns // NS_OF_MS
        self._tracing.processed(partition, records[:taken], began_ns, ended_ns, ahead_ms)
        return taken


class TracedPublisher(Publisher):
    """A publisher that traces the decisions of traced slices."""

    def __init__(self, tracing: TurnTracing, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracing = tracing

    async def publish(self, partition: int, outgoing: Sequence[OutgoingRecord]) -> None:
        """Publish records, as the plain publisher does."""
        slices = self._tracing.sending(partition, outgoing)
        began_ns = time.time_ns()
        await super().publish(partition, outgoing)
        self._tracing.sent(partition, slices, began_ns, time.time_ns())


@asynccontextmanager
async def tracing_turns(settings: Settings) -> AsyncIterator[TurnTracing | None]:
    """Send spans by OTLP while the body runs, if the settings ask for them; else give None.

    Raises `InvalidSettings` if there is no way to send them.
    """
    if not settings.trace_sample:
        yield None
        return
    target = otlp_target(os.environ, "traces")
    if target is None:
        raise InvalidSettings(
            "STREAMPROC_TRACE_SAMPLE (--trace-sample): spans have no destination. Set OTEL_EXPORTER_OTLP_ENDPOINT, "
            "install 'streamproc[otel]', and leave sending switched on, or set it to 0"
        )
    tracing = TurnTracing(settings)

    def request() -> bytes:
        spans = tracing.take()
        return spans_request(spans, target.resource) if spans else b""

    async with sending_by_otlp(target, "spans", request):
        yield tracing
