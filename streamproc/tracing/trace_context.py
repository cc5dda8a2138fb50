"""W3C trace context in the headers of records: the span in which a turn was published.

A `traceparent` is text such as ``00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01``: version, trace id, span id,
flags. Headers come from anyone who may write to a topic, so a text of another form counts as absent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

TURN_HEADER: Final = "traceparent"  # the name that W3C gives it, which traced Kafka clients of any language write
CONTROL_HEADER: Final = "ce_traceparent"  # CloudEvents' extension for distributed tracing

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
LENGTH: Final = 55  # characters


class TraceContext(NamedTuple):
    """The parts of a `traceparent`: the ids as lower-case hex, and the flags (1: sampled)."""

    trace_id: str
    span_id: str
    flags: int


def is_traceparent(text: str) -> bool:
    """Return whether a text is a `traceparent` with a valid trace id and span id."""
    return _FORM.fullmatch(text) is not None


def split_traceparent(traceparent: str) -> TraceContext:
    """Return the parts of a valid `traceparent`."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return TraceContext(trace_id, span_id, int(flags, 16))


def find_traceparent(headers: Iterable[tuple[str, bytes | None]], name: str) -> str:
    """Return the first valid `traceparent` among the headers of this name; an empty text if there is none."""
    for header, value in headers:
        if header == name and value is not None and len(value) == LENGTH:
            text = value.decode("latin-1")
            if is_traceparent(text):
                return text
    return ""


def current_traceparent() -> str:
    """Return the current span as a `traceparent`; an empty text if there is none. Never raises."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    try:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"
    except Exception:  # noqa: BLE001  # a tracer's fault, or a module that is still being imported, must not cost a turn
        return ""
