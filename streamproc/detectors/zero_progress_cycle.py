"""STALL006 zero_progress_cycle: a whole cycle, and no task was completed in it.

Sees: a cycle from BUILD to VALIDATE that ends with no task completed: `completed` of `cycle.completed` is 0, or where
it does not say, the board saw none reach a state that means done. It halts the run: the whole pipeline is at fault.

Why: a cycle of many agents without a single result is likely a scope that does not fit, or tasks that are too large.

False alarms: a cycle with nothing left to do is none, and neither is one that tells nothing and of which nothing is
known.

Tuning: `halt` counts such cycles in a row; 0 turns it off.

Reference: tickets requirement, "a full BUILD→VALIDATE cycle completes with 0 tasks transitioning to completed".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, cycles, moved, task_finding
from streamproc.model.wire import CycleCompleted


@dataclass(frozen=True, slots=True)
class Limits:
    """Cycles in a row in which nothing was completed."""

    halt: int = 1  # systemic: a second one would waste as much as the first


class ZeroProgressCycle:
    """STALL006."""

    code = "STALL006"
    name = "zero_progress_cycle"
    kinds = kind.BOARD

    def check(self, view: View, limits: Limits) -> Finding | None:
        step, event = view.board_change, view.event
        if step is None or not isinstance(event, CycleCompleted) or step.completed != 0:
            return None
        if not 0 < limits.halt == step.board.empty_cycles:
            return None
        name = f"Cycle {event.cycle}" if event.cycle else "A cycle"
        again = f", {step.board.empty_cycles} times in a row" if step.board.empty_cycles > 1 else ""
        return task_finding(
            view,
            self.code,
            f"{name} ended with no task completed{again}: the fault is in the whole; look at the scope.",
            Evidence(kind=self.name, count=step.board.empty_cycles, limit=limits.halt, unit="cycles"),
            level=Level.HALT,
            action="ask_human",
            status="stalled",
        )


DETECTOR = ZeroProgressCycle()

_WORK = moved("T1", "LOCKED", "IMPLEMENTING")

HEALTHY = [
    Example("one task a cycle", [*_WORK, *cycles(1, 2, 1)]),
    Example("the board saw it itself", [*_WORK, *moved("T2", "COMMIT", "DONE"), {"type": "cycle.completed"}]),
    Example("nothing is left to do", [*moved("T2", "COMMIT", "DONE"), *cycles(1, 0)]),
]
STUCK = [
    Example("nothing was completed", [*_WORK, *cycles(0)], "halt", 0),
    Example("after two good cycles", [*_WORK, *cycles(2, 1, 0)], "halt", 0),
]
