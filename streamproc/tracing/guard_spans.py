"""The span of a guard: what happens in its body belongs to it, and it says which halt ended it."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import Halted
from streamproc.model.escaping import escape
from streamproc.model.redaction import redact_id
from streamproc.tracing.halt_spans import add_halt

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

log = logging.getLogger(__name__)

NAME: Final = "streamproc.guard"


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
