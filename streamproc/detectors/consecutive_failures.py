"""ERROR004 consecutive_failures: several tasks fail in a row.

Sees: three different tasks that fail with no success in between. A task fails when it gets a REJECTED verdict, or when
it enters a state that the board lists under `failed` (BLOCKED, STALLED, ESCALATED, FAILED), or a decision moves it
there, as one about its errors, its tokens or its stall. A task that is approved or completed is a success.

Why: tasks that fail in a row rarely fail independently: a tool, a key or a shared module is broken. This notifies a
person before the fourth failure.

False alarms: three parallel tasks that are each sent back once also trigger it. It only notifies; it stops nothing.

Tuning: `warn` counts tasks; 0 turns it off. `failed` of the board lists the states in which a task has failed.

Reference: tickets requirement, notification trigger "3 consecutive task failures".
"""

from __future__ import annotations

from streamproc.core.decision import REPEATED_ERROR
from streamproc.detectors.base import Example, Finding, RawTurn, View, kind, moved
from streamproc.detectors.board_detector import BoardDetector


class ConsecutiveFailures(BoardDetector):
    code, name = "ERROR004", "consecutive_failures"
    evidence = "count", "tasks"
    kinds = kind.BOARD | kind.TASK_FAILED
    reason = REPEATED_ERROR

    class Limits:
        """Different tasks that failed in a row."""

        warn: int = 3  # two may be chance

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None or not 0 < limits.warn == step.failed:
            return None
        tasks = step.board.tasks
        names = [tasks[key].id for key in step.board.failed if key in tasks]
        message = f"{step.failed} tasks failed in a row: {', '.join(names)}."
        return self.task_finding(view, message, type="notification", action="ask_human", count=step.failed, tasks=names)


DETECTOR = ConsecutiveFailures()


def _verdict(task: str, verdict: str) -> RawTurn:
    return {"type": "task.verdict", "task_id": task, "verdict": verdict}


HEALTHY = [
    Example("two fail, one succeeds, two fail", [
        _verdict(task, verdict)
        for task, verdict in (("T1", "REJECTED"), ("T2", "REJECTED"), ("T3", "APPROVED"), ("T4", "REJECTED"),
                              ("T5", "REJECTED"))
    ]),
    Example("one task fails twice, another once", [_verdict(task, "REJECTED") for task in ("T1", "T1", "T2")]),
]  # fmt: skip
STUCK = [
    Example("three are rejected", [_verdict(task, "REJECTED") for task in ("T1", "T2", "T3")], "warn", 0),
    Example("three are blocked", [
        move for task in ("T1", "T2", "T3") for move in moved(task, "IMPLEMENTING", "BLOCKED")
    ], "warn", 0),
]  # fmt: skip
