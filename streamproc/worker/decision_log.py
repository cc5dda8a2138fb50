"""The lines about decisions in a worker's log.

Each halt has a line, up to a number of lines a second: a fleet that fails at once halts thousands of runs in that time,
and writing their lines would delay the decisions about others. What is left out is counted in the next line. Every
halt, with its evidence, is on the control topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from streamproc.core.decision import Decision
from streamproc.detectors import LAYERS
from streamproc.kafka.log_limit import LineRate, LogLimit
from streamproc.tracing.trace_context import split_traceparent
from streamproc.worker.limits import HALT_LINES_A_SECOND

log = logging.getLogger(__name__)
limited = LogLimit(log)
halt_lines = LineRate(log, HALT_LINES_A_SECOND)


def log_decisions(decisions: Iterable[tuple[Decision, str]]) -> None:
    """Log halts, and what layers of deliberation decide: that as warnings, and not without end. Each comes with the
    traceparent of the turn that caused it, if there is one."""
    for decision, traceparent in decisions:
        layer = decision.code in LAYERS
        if layer or halt_lines.admits():
            _log_decision(decision, traceparent, layer=layer)


def _log_decision(decision: Decision, traceparent: str, *, layer: bool) -> None:
    text, trigger = " run=%s code=%s turn=%s partition=%s reason=%s node=%s id=%s", decision.trigger
    text = f"{decision.severity}{text}"
    at = (trigger.turn, trigger.partition) if trigger is not None else (None, None)
    values: tuple[object, ...] = (
        decision.run_id, decision.code, *at, decision.halt_reason, decision.node, decision.id,
    )  # fmt: skip
    if traceparent:
        context = split_traceparent(traceparent)
        text, values = f"{text} trace_id=%s span_id=%s", (*values, context.trace_id, context.span_id)
    if layer:
        limited(logging.WARNING, (decision.code, decision.severity), text, *values)
    else:
        halt_lines(logging.INFO, text, *values)
