"""A halt as an event of the span that it ends, so that a trace says why the agent stopped."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from streamproc.tracing.trace_context import split_traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from streamproc.model.controls import ControlEvent

EVENT: Final = "streamproc.halt"

# Parallel steps, and frameworks that ask again while they end, meet the same halt in one span.
_recorded: deque[tuple[int, int, str]] = deque(maxlen=1_000)


def record_halt(control: ControlEvent | None, message: str) -> None:
    """Add a halt to the current span, as `add_halt` does; do nothing if no span is recording."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        add_halt(trace, trace.get_current_span(), control, message)


def add_halt(trace: Any, span: Span, control: ControlEvent | None, message: str) -> None:
    """Add a halt to a span, once, link the span of the turn that caused it, and set the span's status to ERROR.

    `trace` is the module ``opentelemetry.trace``. Without a control event, of a halt that is only known as a fact, the
    message is all that is said.
    """
    if not span.is_recording():
        return
    code = "Halted" if control is None else control.code
    context = span.get_span_context()
    key = context.trace_id, context.span_id, message if control is None else control.id
    if key in _recorded:
        return
    _recorded.append(key)
    attributes: dict[str, AttributeValue] = {"streamproc.severity": "halt", "streamproc.message": message}
    traceparent = "" if control is None else control.traceparent
    if control is not None:
        attributes |= {"streamproc.code": code, "streamproc.control.id": control.id}
        if control.onset is not None:
            attributes["streamproc.onset"] = control.onset
        if traceparent:
            attributes["streamproc.trace.id"] = split_traceparent(traceparent).trace_id
    span.add_event(EVENT, attributes)
    span.set_attribute("error.type", code)
    span.set_status(trace.Status(trace.StatusCode.ERROR, message))
    if control is not None and traceparent:
        cause = split_traceparent(traceparent)
        flags = trace.TraceFlags(cause.flags)
        linked = trace.SpanContext(int(cause.trace_id, 16), int(cause.span_id, 16), is_remote=True, trace_flags=flags)
        span.add_link(linked, {"streamproc.control.id": control.id})
