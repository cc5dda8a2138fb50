"""The span of a guard: what happens in its body belongs to it, and it says which halt ended it; and a halt as an event
of the span that it ends, so that a trace says why the agent stopped."""

from __future__ import annotations

import logging
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import Halted
from streamproc.model.escaping import escape
from streamproc.model.redaction import redact_id
from streamproc.tracing.trace_context import split_traceparent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from streamproc.model.controls import ControlEvent

EVENT: Final = "streamproc.halt"

# Parallel steps, and frameworks that ask again while they end, meet the same halt in one span.
_recorded: deque[tuple[int, int, str]] = deque(maxlen=1_000)

log = logging.getLogger(__name__)
NAME: Final = "streamproc.guard"


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


class GuardSpan:
    """The span of one guard, current from now on until `end`. A tracer's fault does not reach the guard.

    Without a tracer provider there is none, and the current span stays as it is.
    """

    __slots__ = ("_scope", "_span")

    def __init__(self, run_id: str) -> None:
        self._span: Any = None
        self._scope: AbstractContextManager[Any] | None = None
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return
        try:
            run = escape(redact_id(run_id))
            span = trace.get_tracer("streamproc").start_span(f"{NAME} {run}", attributes={"streamproc.run.id": run})
            if span.get_span_context() in (trace.get_current_span().get_span_context(), trace.INVALID_SPAN_CONTEXT):
                return  # no tracer provider is set: a span of nothing must not hide one of another provider
            scope = trace.use_span(span, end_on_exit=True)
            scope.__enter__()
        except Exception as problem:  # noqa: BLE001
            log.warning("a guard has no span: %s", problem)
        else:
            self._span, self._scope = span, scope

    def end(self, error: BaseException | None) -> None:
        """End the span, with the halt if it is one that leaves the guard."""
        scope, self._scope = self._scope, None
        if scope is None:
            return
        try:
            if isinstance(error, Halted):
                control = error.control
                message = str(error) if control is None else control.message
                add_halt(sys.modules["opentelemetry.trace"], self._span, control, message)
        except Exception as problem:  # noqa: BLE001
            log.warning("a halt is missing in the span of a guard: %s", problem)
        finally:
            self._leave(scope)

    @staticmethod
    def _leave(scope: AbstractContextManager[Any]) -> None:
        try:
            scope.__exit__(None, None, None)  # an error is for the program's own spans: its text may quote content
        except Exception as problem:  # noqa: BLE001
            log.warning("the span of a guard did not end: %s", problem)
