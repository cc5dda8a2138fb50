"""ERROR002 retry_exhausted: a task fails again and again in the same way.

Sees: three failures in a row of one task with the same class, whatever its case: the `failure_class` of its transitions
and verdicts, and the `class` of the first error of a turn with its `task_id`. The task is BLOCKED until a transition
records the root cause or a person's approval, a validator approves it, or the run makes progress.

Why: a task that failed three times for one reason fails a fourth time for the same reason.

False alarms: a verdict and the transition that follows it are one failure. Another class, an approval, a turn of the
task with an empty `errors` list, or progress (a metric or test result better than ever) restarts the count. Retryable
errors and errors without a class do not count.

Tuning: `warn` and `halt` count failures; at `halt` the run is halted, too (0: it continues with its other tasks).

Reference: tickets requirement, "task retried 3 times with same failure class"; "status to BLOCKED, stop retries".
"""

from __future__ import annotations

from streamproc.core.board.state import HELD_APPROVAL
from streamproc.core.decision import REPEATED_ERROR
from streamproc.detectors.base import Example, Finding, RawTurn, View, moved
from streamproc.detectors.board_detector import CAUSE, OF_MOVES, BoardDetector, level_at, owner
from streamproc.model.wire import Turn


class RetryExhausted(BoardDetector):
    code, name = "ERROR002", "retry_exhausted"
    evidence = (*OF_MOVES, "count", "failure_class")
    reason = REPEATED_ERROR

    class Limits:
        """Failures of a task in a row, with the same class."""

        warn: int = 3  # the retries that the requirement grants a task
        halt: int = 0  # one failing task is no reason to stop the board's other tasks

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None:
            return None
        if (reached := level_at(step.failures, limits.warn, limits.halt)) is None:
            return self.still_parked(view, CAUSE)
        event = view.event
        if isinstance(event, Turn):
            failure = event.errors.error_class if event.errors is not None else ""
        else:
            failure = getattr(event, "failure_class", "")
        escalated = bool(step.task.flags & HELD_APPROVAL)
        until = "stays escalated until a person decides" if escalated else f"is blocked until {CAUSE} is recorded"
        failure = failure.strip()
        message = f"{step.task.id} failed {step.failures} times in a row with class {failure}; it {until}."
        return self.task_finding(
            view, message, reached, action="ask_human", task_status="escalated" if escalated else "blocked",
            count=step.failures, failure_class=failure, agent=owner(view, step.task.id),
            last_valid=step.config.name(step.task.state) or None, missing=["root_cause"],
        )  # fmt: skip


DETECTOR = RetryExhausted()


def _failed(task: str, kind: str) -> list[RawTurn]:
    return [
        {"type": "task.verdict", "task_id": task, "verdict": "REJECTED", "failure_class": kind},
        *moved(task, "QA_REVIEW", "REWORK", failure_class=kind),
        *moved(task, "REWORK", "IMPLEMENTING", "QA_REVIEW"),
    ]


def _error(task: str, kind: str) -> RawTurn:
    return {"node": "coder", "task_id": task, "errors": [{"message": f"{kind} in step {task}", "class": kind}]}


HEALTHY = [
    Example("two failures of one class, then another", [
        *_failed("T1", "acceptance"), *_failed("T1", "acceptance")[:2], *moved("T1", "REWORK", "IMPLEMENTING"),
        _error("T1", "SyntaxError"),
    ]),
    Example("three tasks fail once", [_error(task, "TimeoutError") for task in ("T1", "T2", "T3")]),
]  # fmt: skip
STUCK = [
    Example("three verdicts for the same reason", [
        {"type": "task.verdict", "task_id": "T1", "verdict": "REJECTED", "failure_class": "acceptance"}
    ] * 3, "warn", 0),
    Example("three turns with the same error", [
        {"node": "coder", "task_id": "T1", "errors": [{"message": f"attempt {n}", "class": "ImportError"}]}
        for n in range(3)
    ], "warn", 2),
    Example("the same class in three spellings", [
        _error("T1", kind) for kind in ("AssertionError", "assertionerror", " AssertionError")
    ], "warn", 2),
]  # fmt: skip
