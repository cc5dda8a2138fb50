"""TASK004 state_skip: a task goes where the board has no way, or past what the way asks for.

Sees: a transition that is not on the board (READY to VALIDATION), into a state that the board does not have, or with
evidence that says of itself that it failed. The task stays in its last valid state, and what comes next is judged from
there.

Why: the states are the checks. What skips them was not checked.

False alarms: the first transition of a task is believed as to where it starts, so a board that is joined late is not
told. A team with a board of its own should declare it: states of which the board knows none are not judged at all.

Tuning: `path`, `transitions`, `aside` and `guards` of the board in a policy. A skip is told once, and again when the
task has moved.

Reference: tickets requirement, "block the state transition, revert ticket to its last valid state".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, moved, refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """The ways are the board's."""


class StateSkip:
    """TASK004."""

    code = "TASK004"
    name = "state_skip"
    kinds = kind.BOARD

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None or step.refused != self.code or step.attempts != 1:
            return None
        law, task = step.config, step.task
        to = law.name(step.target) or getattr(view.event, "to", "")
        why = f"{', '.join(step.missing)} missing or failing" if step.missing else "the board has no such way"
        message = f"{task.id} may not go from {law.name(step.source)} to {to}: {why}. It is {law.name(task.state)}."
        return refusal(view, self.code, self.name, message)


DETECTOR = StateSkip()

HEALTHY = [
    Example("all the way", moved(
        "T1", "READY", "LOCKED", "IMPLEMENTING", "QA_REVIEW", "VALIDATION",
        dod={"verdict": "APPROVED", "items": [{"name": "tests", "status": True}]},
    ) + moved("T1", "VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT", "DONE")),
    Example("a review sends it back once", moved(
        "T1", "LOCKED", "IMPLEMENTING", "QA_REVIEW", "REWORK", "IMPLEMENTING", "QA_REVIEW",
    )),
    Example("a tracker with other words", moved("T1", "Backlog", "Selected", "Doing", "Shipped")),
]  # fmt: skip
STUCK = [
    Example("from LOCKED to VALIDATION", moved("T1", "READY", "LOCKED", "VALIDATION"), "warn", 0),
    Example("a review that failed is no review", moved(
        "T1", "DOCUMENTATION", "CI_REVIEW", "COMMIT", evidence={"ci": {"status": "failed"}},
    ), "warn", 0),
    Example("straight to DONE", [
        {"type": "task.created", "task_id": "T1"},
        {"type": "task.transition", "task_id": "T1", "to": "DONE"},
    ], "warn", 0),
]  # fmt: skip
