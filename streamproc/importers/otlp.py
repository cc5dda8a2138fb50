"""OTLP/JSON: spans as the file exporter of a collector or of an SDK writes them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from streamproc.importers.content import items, mapping, string
from streamproc.importers.genai_spans import SpanEvent, SpanRecord, is_known, step_of
from streamproc.importers.imported import Format, Import, Imported, any_row
from streamproc.importers.log_file import LogFile
from streamproc.importers.trace_buffer import TraceBuffer

NAME: Final = "otlp"
EVENTS_MAX: Final = 1_000  # events, and links, of a span; SDKs stop at 128 by default
VALUE_DEPTH_MAX: Final = 50  # levels of lists and mappings in an attribute
STATUS_NAMES: Final = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
KIND_NAMES: Final = {"SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3}
LOGS_NOTE: Final = "log records are not read: content that is recorded in logs instead of spans cannot be seen"
ID_LENGTHS: Final = (16, 32)  # of ids of spans and traces in hex; in base64 they have 12 and 24 characters


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield the raw events of a log."""
    unit = "span" if log.is_document() else "line"
    buffer = TraceBuffer(NAME, reading, run_is_trace=False, unit=unit)
    number = 0
    for row in log.rows():
        if not isinstance(row.data, dict) or "resourceSpans" not in row.data:
            kind = next(iter(row.data), "empty") if isinstance(row.data, dict) else row.data
            buffer.tally.ignore(kind)
            if kind == "resourceLogs":
                buffer.tally.notes[LOGS_NOTE] = None
            continue
        for span in spans_of(row.data):
            number += 1
            span.number = number if log.is_document() else row.number
            yield from _taken(span, buffer)
    yield from buffer.rest()


def _taken(span: SpanRecord, buffer: TraceBuffer) -> Iterator[Imported]:
    if not span.trace_id or not span.span_id:
        buffer.tally.ignore("span without an id")
    elif not span.end_ns and is_known(span):
        buffer.tally.ignore("span that never ended")
    else:
        if not is_known(span):
            buffer.tally.ignore(f"span of {span.scope}" if span.scope else "span of another kind")
        yield from buffer.add(step_of(span))  # a span that is of no interest may still join others


def spans_of(document: Any) -> Iterator[SpanRecord]:
    """Yield the spans of a decoded `TracesData`. Never raises for its shape."""
    for resource_spans in filter(None, map(mapping, items(mapping(document).get("resourceSpans")))):
        resource = attributes_of(mapping(resource_spans.get("resource")).get("attributes"))
        scopes = resource_spans.get("scopeSpans") or resource_spans.get("instrumentationLibrarySpans")
        for scope_spans in filter(None, map(mapping, items(scopes))):
            scope = mapping(scope_spans.get("scope") or scope_spans.get("instrumentationLibrary"))
            for span in items(scope_spans.get("spans")):
                yield _span(mapping(span), resource, string(scope.get("name")))


def _span(span: dict[str, Any], resource: dict[str, Any], scope: str) -> SpanRecord:
    status = mapping(span.get("status"))
    return SpanRecord(
        trace_id=_id(span.get("traceId")),
        span_id=_id(span.get("spanId")),
        parent_id=_id(span.get("parentSpanId")),
        name=string(span.get("name")),
        kind=_enum(span.get("kind"), KIND_NAMES),
        start_ns=_integer(span.get("startTimeUnixNano")),
        end_ns=_integer(span.get("endTimeUnixNano")),
        attributes=attributes_of(span.get("attributes")),
        resource=resource,
        scope=scope,
        status=_enum(status.get("code"), STATUS_NAMES),
        status_message=string(status.get("message")),
        events=[
            SpanEvent(string(event.get("name")), attributes_of(event.get("attributes")))
            for event in map(mapping, items(span.get("events"))[:EVENTS_MAX])
        ],
        links=[_id(mapping(link).get("traceId")) for link in items(span.get("links"))[:EVENTS_MAX]],
    )


def _id(value: Any) -> str:
    """Return an id in lower-case hex; JSON of protobuf has it in base64."""
    text = string(value)
    if not text.strip("0"):
        return ""
    if len(text) not in ID_LENGTHS and text.endswith("="):
        try:
            return base64.b64decode(text, validate=True).hex()
        except (binascii.Error, ValueError):
            return text
    return text.lower()


def _enum(value: Any, by_name: dict[str, int]) -> int:
    if isinstance(value, str):
        return by_name.get(value, 0)
    return value if isinstance(value, int) else 0


def _integer(value: Any) -> int:
    known = isinstance(value, (int, str)) and not isinstance(value, bool)
    return max(0, _signed(value) or 0) if known else 0


def attributes_of(listed: Any) -> dict[str, Any]:
    """Return a list of `{key, value}` as a mapping."""
    found = (one for one in map(mapping, items(listed)) if isinstance(one.get("key"), str))
    return {one["key"]: value_of(one.get("value")) for one in found}


def value_of(value: Any, depth: int = 0) -> Any:
    """Return an `AnyValue`: 64-bit integers are texts in JSON, and lists and mappings are wrapped."""
    if not isinstance(value, dict) or depth > VALUE_DEPTH_MAX:
        return None
    for kind, inner in value.items():
        if kind == "arrayValue":
            return [value_of(one, depth + 1) for one in items(mapping(inner).get("values"))]
        if kind == "kvlistValue":
            listed = (one for one in items(mapping(inner).get("values")) if isinstance(one, dict))
            return {str(one.get("key")): value_of(one.get("value"), depth + 1) for one in listed}
        if kind == "intValue":
            return _signed(inner)
        if kind == "bytesValue":
            return "[bytes]"
        if kind in ("stringValue", "doubleValue", "boolValue"):
            return inner if isinstance(inner, (str, int, float, bool)) else None
    return None


def _signed(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


FORMAT: Final = Format(
    NAME, "OpenTelemetry spans (OTLP/JSON)", any_row(lambda row: isinstance(row.get("resourceSpans"), list)), read
)
