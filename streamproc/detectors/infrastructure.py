"""INFRA001 infrastructure: calls fail for reasons outside the agent.

Sees: turns in a row whose calls failed only with retryable infrastructure errors (429, 5xx, time-outs, declared
`retryable`).

Why: a retry is right; ten immediate retries are not. The run should pause.

False alarms: none with a cost: it never halts and never marks the agent as stuck.

Tuning: `warn` counts turns; 0 turns it off. The action is `pause`.

Reference: catalogue of errors, "retryable infrastructure errors have a counter of their own".
"""

from __future__ import annotations

from streamproc.core.marks import first_of
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, kind
from streamproc.detectors.error_streak import failing


class Infrastructure(Detector):
    code, name = "INFRA001", "infrastructure"
    kinds = kind.RETRIES
    evidence = "count", "tool"
    status = "stalled"

    class Limits:
        """Turns in a row that failed with infrastructure errors."""

        warn: int = 10

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"retries": first_of(limits.warn)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        retries = view.run.tools.retries
        if not 0 < limits.warn <= retries:
            return None
        message = f"Calls failed with infrastructure errors in {retries} consecutive turns; pause before retrying."
        return self.finding(Level.WARN, 0, message, action="pause", count=retries, tool=view.turn.calls[0].name)


DETECTOR = Infrastructure()
_BUSY = failing("llm", {}, "HTTP 429 Too Many Requests")
HEALTHY = [
    Example("nine retries, then an answer", [*[_BUSY] * 9, call("llm", {}, "hello"), *[_BUSY] * 9]),
    Example("a few retries", [_BUSY] * 4),
]
STUCK = [
    Example("ten retries in a row", [_BUSY] * 10, "warn", 9),
    Example("ten retries with different arguments", [
        failing("llm", {"n": n}, "HTTP 503 Service Unavailable") for n in range(10)
    ], "warn", 9),
]  # fmt: skip
