"""TASK004 state_skip: a task makes a transition that the board does not allow.

Sees: a transition that is not on the board (READY to VALIDATION), also by way of a parked state or of IN_PROGRESS, into
a state that the board does not have, or with evidence that reports its own failure. The task stays in its last valid
state, and the next transition is checked from there.

Why: the states are the checks. A task that skips a state was not checked.

False alarms: the first transition of a task is trusted for its starting state, so joining a board late causes no
finding. If your team has a board of its own, declare it: unknown states are not checked at all.

Tuning: `path`, `transitions`, `aside` and `guards` of the board in a policy. Each attempt is refused.

Reference: tickets requirement, "block the state transition, revert ticket to its last valid state".
"""

from __future__ import annotations

from streamproc.core.board.change import BoardChange
from streamproc.core.board.state import Task
from streamproc.detectors.base import Example, View, moved
from streamproc.detectors.board_detector import GuardDetector


class StateSkip(GuardDetector):
    code, name = "TASK004", "state_skip"

    class Limits:
        """None of its own: the transitions are the board's."""

    def problem(self, view: View, step: BoardChange, task: Task) -> str:
        source, to = step.config.name(step.source), step.config.name(step.target) or getattr(view.event, "to", "")
        why = f"{', '.join(step.missing)} missing or failing" if step.missing else "the board has no such transition"
        return f"{task.id} cannot move from {source} to {to}: {why}"


DETECTOR = StateSkip()
HEALTHY = [
    Example("every state in order", moved(
        "T1", "READY", "LOCKED", "IMPLEMENTING", "QA_REVIEW", "VALIDATION",
        dod={"verdict": "APPROVED", "items": [{"name": "tests", "status": True}]},
    ) + moved("T1", "VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT", "DONE")),
    Example("a review sends it back once", moved(
        "T1", "LOCKED", "IMPLEMENTING", "QA_REVIEW", "REWORK", "IMPLEMENTING", "QA_REVIEW",
    )),
    Example("a to-do list, with a task that is blocked before it starts", moved(
        "T1", "pending", "blocked", "pending", "in_progress", "completed",
    )),
    Example("a tracker with states of its own", moved("T1", "Backlog", "Selected", "Doing", "Shipped")),
]  # fmt: skip
STUCK = [
    Example("from LOCKED to VALIDATION", moved("T1", "READY", "LOCKED", "VALIDATION"), "warn", 0),
    Example("from IN_PROGRESS to VALIDATION", moved("T1", "READY", "IN_PROGRESS", "VALIDATION"), "warn", 0),
    Example("from BLOCKED to IMPLEMENTING past LOCKED", moved("T1", "READY", "BLOCKED", "IMPLEMENTING"), "warn", 0),
    Example("a transition with a failed check", moved(
        "T1", "DOCUMENTATION", "CI_REVIEW", "COMMIT", evidence={"ci": {"status": "failed"}},
    ), "warn", 0),
    Example("straight to DONE", [
        {"type": "task.created", "task_id": "T1"}, {"type": "task.transition", "task_id": "T1", "to": "DONE"},
    ], "warn", 0),
]  # fmt: skip
