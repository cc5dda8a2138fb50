"""The lines about decisions in a worker's log."""

from __future__ import annotations

import logging

from streamproc.core.decision import Decision
from streamproc.detectors import LAYERS
from streamproc.kafka.log_limit import LogLimit
from streamproc.tracing.trace_context import split_traceparent

log = logging.getLogger(__name__)
limited = LogLimit(log)


def log_decision(decision: Decision, traceparent: str) -> None:
    """Log a halt, or what a layer of deliberation decides: that as a warning, and not without end."""
    text, trigger = " run=%s code=%s turn=%s partition=%s reason=%s node=%s id=%s", decision.trigger
    text = f"{decision.severity}{text}"
    at = (trigger.turn, trigger.partition) if trigger is not None else (None, None)
    values: tuple[object, ...] = (
        decision.run_id, decision.code, *at, decision.halt_reason, decision.node, decision.id,
    )  # fmt: skip
    if traceparent:
        context = split_traceparent(traceparent)
        text, values = f"{text} trace_id=%s span_id=%s", (*values, context.trace_id, context.span_id)
    if decision.code in LAYERS:
        limited(logging.WARNING, (decision.code, decision.severity), text, *values)
    else:
        log.info(text, *values)
