"""STALL006 zero_progress_cycle: a whole cycle completed no task.

Sees: a cycle from BUILD to VALIDATE that ends with no task completed: `completed` of `cycle.completed` is 0, or lists
only tasks that were done in an earlier cycle, or that stand in another state and have not moved since they were listed;
if the event does not state it, the board saw no task reach a done state. A cancelled task is done, and not completed.
It halts the run, because the whole pipeline is at fault.

Why: a cycle of many agents without a single result suggests a wrong scope, or tasks that are too large.

False alarms: a cycle with nothing left to do does not count, nor does one that reports nothing and of which the board
knows nothing. A number is believed, and so is a listed task that the board does not know, or knows no move of.

Tuning: `halt` counts such cycles in a row; 0 turns it off.

Reference: tickets requirement, "a full BUILD→VALIDATE cycle completes with 0 tasks transitioning to completed".
"""

from __future__ import annotations

from streamproc.detectors.base import Example, Finding, Level, View, cycles, moved, ordinal
from streamproc.detectors.board_detector import BoardDetector
from streamproc.model.wire import CycleCompleted


class ZeroProgressCycle(BoardDetector):
    code, name = "STALL006", "zero_progress_cycle"
    evidence = "count", "limit", "unit"

    class Limits:
        """Cycles in a row without a completed task."""

        halt: int = 1  # systemic: a second one would waste as much as the first

    def check(self, view: View, limits: Limits) -> Finding | None:
        step, event = view.board_change, view.event
        if step is None or not isinstance(event, CycleCompleted) or step.completed != 0:
            return None
        count = step.board.empty_cycles
        if not 0 < limits.halt == count:
            return None
        name = f"Cycle {event.cycle}" if event.cycle else "A cycle"
        again = f", for the {ordinal(count)} time in a row" if count > 1 else ""
        message = f"{name} ended with no task completed{again}; review the scope of the whole pipeline."
        return self.task_finding(
            view, message, Level.HALT, action="ask_human", status="stalled",
            count=count, limit=limits.halt, unit="cycles",
        )  # fmt: skip


DETECTOR = ZeroProgressCycle()
_WORK = moved("T1", "LOCKED", "IMPLEMENTING")
HEALTHY = [
    Example("at least one task a cycle", [*_WORK, *cycles(1, 2, 1)]),
    Example("the board saw a task reach done", [*_WORK, *moved("T2", "COMMIT", "DONE"), {"type": "cycle.completed"}]),
    Example(
        "a list that grows",
        [
            *_WORK,
            *moved("T2", "COMMIT", "DONE"),
            {"type": "cycle.completed", "completed": ["T2"]},
            *moved("T3", "COMMIT", "DONE"),
            {"type": "cycle.completed", "completed": ["T2", "T3"]},
        ],
    ),
    Example("no task is left to do", [*moved("T2", "COMMIT", "DONE"), *cycles(1, 0)]),
]
STUCK = [
    Example("a cycle without a completed task", [*_WORK, *cycles(0)], "halt", 0),
    Example("the same after two productive cycles", [*_WORK, *cycles(2, 1, 0)], "halt", 0),
    Example(
        "the list of completed tasks does not grow",
        [
            *_WORK,
            *moved("T2", "COMMIT", "DONE"),
            *[{"type": "cycle.completed", "completed": ["T2"]}] * 2,
        ],
        "halt",
        0,
    ),
]
