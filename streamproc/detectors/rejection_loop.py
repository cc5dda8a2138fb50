"""TASK008 rejection_loop: validators reject one task again and again.

Sees: REJECTED verdicts for one task, from any validator. The third escalates the task, with all three reports and the
options for a person: force-approve, cancel, reassign. The task does not move on without a recorded approval, except to
be cancelled.

Why: the agent has had three chances to understand the request; a fourth attempt needs another agent, or another task.

False alarms: rejections count until the task is done, even with approvals of other validators in between.

Tuning: `warn` and `halt` count rejections; at `halt` the run is halted, too (0: it continues with its other tasks).

Reference: tickets requirement, "REJECTED verdict for the same task ≥ 3 times (rework count reaches maximum of 3)".
"""

from __future__ import annotations

from streamproc.core.board.owners import owner_of
from streamproc.detectors.base import Example, Finding, RawTurn, View, moved
from streamproc.detectors.board_detector import OF_MOVES, BoardDetector, level_at
from streamproc.model.controls import ControlRejection

OPTIONS = ["force-approve", "cancel", "reassign"]


class RejectionLoop(BoardDetector):
    code, name = "TASK008", "rejection_loop"
    evidence = (*OF_MOVES, "count", "validator", "rejections", "options")

    class Limits:
        """REJECTED verdicts for one task."""

        warn: int = 3  # the board's maximum of reworks
        halt: int = 0  # one rejected task is no reason to stop the board's other tasks

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None:
            return None
        if (reached := level_at(step.rejected, limits.warn, limits.halt)) is None:
            return self.still_parked(view, "a person's approval")
        rejections = [ControlRejection(validator=by, reason=reason) for by, reason in step.task.rejections]
        message = f"{step.task.id} was rejected {step.rejected} times; force-approve, cancel or reassign it."
        return self.task_finding(
            view, message, reached, type="task.escalated", action="ask_human", task_status="escalated",
            count=step.rejected, attempts=step.rejected, validator=rejections[-1].validator or None,
            agent=owner_of(step.board, step.tag(step.task.id)) or None, rejections=rejections, options=OPTIONS,
            last_valid=step.config.name(step.task.state) or None,
        )  # fmt: skip


DETECTOR = RejectionLoop()


def _verdict(task: str, verdict: str, reason: str = "") -> RawTurn:
    return {"type": "task.verdict", "task_id": task, "validator": "qa-1", "verdict": verdict, "reason": reason}


def _rejected(task: str, times: int) -> list[RawTurn]:
    return [_verdict(task, "REJECTED", f"criterion {n + 1} is not met") for n in range(times)]


HEALTHY = [
    Example("two rejections and an approval", [*_rejected("T1", 2), _verdict("T1", "APPROVED")]),
    Example("three tasks, rejected twice each", [
        verdict for task in ("T1", "T2", "T3") for verdict in (*_rejected(task, 2), _verdict(task, "APPROVED"))
    ]),
]  # fmt: skip
STUCK = [
    Example("rejected three times", _rejected("T1", 3), "warn", 0),
    Example("rejected three times, then sent back to work without an approval", [
        *moved("T1", "IMPLEMENTING", "QA_REVIEW"), *_rejected("T1", 3), *moved("T1", "ESCALATED", "IMPLEMENTING"),
    ], "warn", 0),
]  # fmt: skip
