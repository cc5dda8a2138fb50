"""OTLP requests as spans: protobuf and JSON, also compressed. Nothing here waits, logs or keeps anything."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from streamproc.importers.genai_spans import SpanEvent, SpanRecord
from streamproc.importers.otlp import VALUE_DEPTH_MAX, spans_of
from streamproc.model.expansion import json_expands_beyond
from streamproc.otel.wire_size import NotProtobuf, message_expands_beyond

Encoding = Literal["protobuf", "json"]

NO_PROTOBUF: Final = "the body is not an ExportTraceServiceRequest in protobuf"
GZIP_BITS: Final = 31  # zlib's code for "gzip, with the largest window"
ATTRIBUTES_MAX: Final = 1_000  # of one span, event or mapping; SDKs stop at 128 by default
VALUES_MAX: Final = 500_000  # spans, events and values of a body; 20 000 spans have 25 each
SPANS_MAX: Final = 20_000  # of a body that are read; SDKs send 512 at once by default, collectors 8 192
# What a body may become in memory, by an upper bound: 16 MB of attributes come to this, and it takes 200 MB at most.
EXPANDED_BYTES_MAX: Final = 256 << 20


class UnreadableSpans(Exception):
    """A body is no OTLP. The message says what is wrong, without content."""


class TooManyValues(UnreadableSpans):
    """A body would take too much to read: its size says little, since a value may be two bytes long."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: send fewer spans at once")


def unpacked(body: bytes, bytes_max: int) -> bytes:
    """Return a gzip body decompressed. Raises `UnreadableSpans`, and `OverflowError` beyond `bytes_max`; no more than
    that is ever decompressed."""
    unpacker = zlib.decompressobj(GZIP_BITS)
    try:
        found = unpacker.decompress(body, bytes_max + 1)
    except zlib.error:
        raise UnreadableSpans("Content-Encoding says gzip, and the body is not valid gzip") from None
    if len(found) > bytes_max:
        raise OverflowError
    if not unpacker.eof or unpacker.unused_data:
        raise UnreadableSpans("the gzip body is cut off, or has more behind its end")
    return found


def encoding_of(value: bytes) -> Encoding:
    """Return the encoding of a body that no header describes: JSON begins with a brace, protobuf never does."""
    return "json" if value.lstrip()[:1] == b"{" else "protobuf"


def read_spans(body: bytes, encoding: Encoding) -> Iterator[SpanRecord]:
    """Return the spans of an `ExportTraceServiceRequest` or a `TracesData`, which have the same bytes.

    Raises `UnreadableSpans` for what is neither, before the first span, and `TooManyValues` also after some. What the
    body would take in memory is counted before it is parsed.
    """
    try:
        expands = (json_expands_beyond if encoding == "json" else message_expands_beyond)(body, EXPANDED_BYTES_MAX)
    except NotProtobuf:
        raise UnreadableSpans(NO_PROTOBUF) from None
    if expands:
        raise TooManyValues(f"the body may take more than {EXPANDED_BYTES_MAX >> 20} MB to read")
    if encoding == "json":
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise UnreadableSpans(f"the body is not valid JSON (line {error.lineno}, column {error.colno})") from None
        if not isinstance(document, dict) or not isinstance(document.get("resourceSpans", []), list):
            raise UnreadableSpans("the body is JSON, but not an ExportTraceServiceRequest: resourceSpans is no list")
        return spans_of(document)
    try:
        data = TracesData.FromString(body)
    except DecodeError:
        raise UnreadableSpans(NO_PROTOBUF) from None
    return _ProtobufSpans(data).spans()


class _ProtobufSpans:
    """Reads the messages of one request."""

    def __init__(self, data: TracesData) -> None:
        self._data = data
        self._left = VALUES_MAX

    def spans(self) -> Iterator[SpanRecord]:
        """Yield the spans. Raises `TooManyValues`."""
        for resource_spans in self._data.resource_spans:
            resource = self._attributes(resource_spans.resource.attributes, 0)
            self._count()
            for scope_spans in resource_spans.scope_spans:
                self._count()
                for span in scope_spans.spans:
                    yield self._span(span, resource, scope_spans.scope.name)

    def _span(self, span: Span, resource: dict[str, Any], scope: str) -> SpanRecord:
        self._count()
        return SpanRecord(
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex() if any(span.parent_span_id) else "",
            name=span.name,
            kind=span.kind,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes=self._attributes(span.attributes, 0),
            resource=resource,
            scope=scope,
            status=span.status.code,
            status_message=span.status.message,
            events=[self._event(event) for event in span.events[:ATTRIBUTES_MAX]],
            links=[link.trace_id.hex() for link in span.links[:ATTRIBUTES_MAX]],
        )

    def _event(self, event: Span.Event) -> SpanEvent:
        self._count()
        return SpanEvent(event.name, self._attributes(event.attributes, 0))

    def _attributes(self, listed: Sequence[KeyValue], depth: int) -> dict[str, Any]:
        return {one.key: self._value(one.value, depth) for one in listed[:ATTRIBUTES_MAX]}

    def _value(self, value: AnyValue, depth: int) -> Any:
        self._count()
        kind = value.WhichOneof("value")
        if kind is None or depth > VALUE_DEPTH_MAX:
            return None
        if kind == "array_value":
            return [self._value(one, depth + 1) for one in value.array_value.values]
        if kind == "kvlist_value":
            return self._attributes(value.kvlist_value.values, depth + 1)
        return "[bytes]" if kind == "bytes_value" else getattr(value, kind)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyValues(f"the body has more than {VALUES_MAX} values")
