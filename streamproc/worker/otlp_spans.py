"""Spans as a request of OTLP, encoded with `opentelemetry-proto`, as metrics are: the SDK is no part of a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.tracing.trace_context import split_traceparent

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

SCOPE: Final = "streamproc"
KINDS: Final = {"receive": 3, "send": 4, "process": 5}  # client, producer and consumer, in OTLP's numbers

Attributes = dict[str, str | int]


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
    """Return spans as one encoded request. Needs the extra ``otel``."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(_key_values(resource))
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
            attributes=_key_values(one.attributes),
        )
        for link in map(split_traceparent, one.links):
            span.links.add(trace_id=bytes.fromhex(link.trace_id), span_id=bytes.fromhex(link.span_id), flags=link.flags)
    return request.SerializeToString()


def _key_values(attributes: Mapping[str, str | int]) -> Iterable[KeyValue]:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    for name, value in attributes.items():
        found = KeyValue(key=name)
        if isinstance(value, int):
            found.value.int_value = value
        else:
            found.value.string_value = value
        yield found
