"""TASK001 state_oscillation: a task swings between two states.

Sees: how often a task returns to a state that it had left: IMPLEMENTING, QA_REVIEW, REWORK and IMPLEMENTING again is
one swing. The third swing forces the task to BLOCKED, where it stays until a transition records the root cause
(`root_cause` in its evidence) or a person's approval.

Why: a fourth round of the same work and the same review costs as much as the first three, and ends the same way.

False alarms: none on one or two reworks. A task that three different reviews send back, each for a good reason, is
also reported; the board cannot read reasons.

Tuning: `warn` and `halt` count swings; at `halt` the run is halted, too (0: it continues with its other tasks).

Reference: tickets requirement, "task status oscillates between two states ≥ 3 times"; "root cause analysis required".
"""

from __future__ import annotations

from streamproc.core.decision import OSCILLATING
from streamproc.detectors.base import Example, Finding, View, moved, ordinal
from streamproc.detectors.board_detector import CAUSE, OF_MOVES, BoardDetector, level_at, owner


class StateOscillation(BoardDetector):
    code, name = "TASK001", "state_oscillation"
    evidence = (*OF_MOVES, "count")
    reason = OSCILLATING

    class Limits:
        """Swings of a task."""

        warn: int = 3  # a review may find problems twice
        halt: int = 0  # one swinging task is no reason to stop the board's other tasks

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None:
            return None
        if (reached := level_at(step.swings, limits.warn, limits.halt)) is None:
            return self.still_parked(view, CAUSE)
        config, task = step.config, step.task
        here = config.name(step.target) or step.to
        before = config.name(step.source) or getattr(view.event, "from_", "")  # empty: a state that the board lacks
        agent = owner(view, task.id)
        message = (
            f"{task.id} returned {f'from {before} ' if before else ''}to {here} for the {ordinal(step.swings)} time; "
            f"stop {agent or 'its agent'}. It is blocked until {CAUSE} is recorded."
        )
        return self.task_finding(
            view, message, reached, action="ask_human", task_status="blocked", count=step.swings,
            from_state=before or None, to_state=here, last_valid=here, agent=agent, missing=["root_cause"],
        )  # fmt: skip


DETECTOR = StateOscillation()
_ROUND = ("QA_REVIEW", "REWORK", "IMPLEMENTING")
HEALTHY = [
    Example("two reworks, then done", [
        *moved("T1", "IMPLEMENTING", *_ROUND * 2, "QA_REVIEW", "VALIDATION", dod=True),
        *moved("T1", "VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT", "DONE"),
    ]),
    Example("three tasks with one rework each", [
        move for name in ("T1", "T2", "T3") for move in moved(name, "IMPLEMENTING", *_ROUND, "QA_REVIEW")
    ]),
    Example("blocked once, then back in its state", moved("T1", "CI_REVIEW", "BLOCKED", "CI_REVIEW", "COMMIT")),
]  # fmt: skip
STUCK = [
    Example("three rounds of rework", moved("T1", "IMPLEMENTING", *_ROUND * 3), "warn", 0),
    Example("blocked and unblocked", moved("T1", "IMPLEMENTING", *("BLOCKED", "IMPLEMENTING") * 3), "warn", 0),
]  # fmt: skip
