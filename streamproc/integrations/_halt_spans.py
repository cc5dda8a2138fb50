"""A halt as an event of the span that it ends, so that a trace says why the agent stopped.

Nothing here imports OpenTelemetry: a program that has a span has imported it.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from streamproc.model.controls import ControlEvent

EVENT: Final = "streamproc.halt"

# Parallel steps, and frameworks that ask again while they end, meet the same halt in one span.
_recorded: deque[tuple[int, int, str]] = deque(maxlen=1_000)


def record_halt(control: ControlEvent | None, message: str) -> None:
    """Add a halt to the current span, once, and set the span's status to ERROR; do nothing if no span is recording.

    Without a control event, of a halt that is only known as a fact, the message is all that is said.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if not span.is_recording():
        return
    code = "Halted" if control is None else control.code
    context = span.get_span_context()
    key = context.trace_id, context.span_id, message if control is None else control.id
    if key in _recorded:
        return
    _recorded.append(key)
    attributes: dict[str, AttributeValue] = {"streamproc.severity": "halt", "streamproc.message": message}
    if control is not None:
        attributes |= {"streamproc.code": code, "streamproc.control.id": control.id}
        if control.onset is not None:
            attributes["streamproc.onset"] = control.onset
    span.add_event(EVENT, attributes)
    span.set_attribute("error.type", code)
    span.set_status(trace.Status(trace.StatusCode.ERROR, message))
