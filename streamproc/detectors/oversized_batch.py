"""TASK003 oversized_batch: an agent is given too many tasks at once.

Sees: a delegation of more tasks than the board allows in its phase: three, and five in SPEC.

Why: an agent with ten tasks in its context finishes none of them; the batch has to be decomposed first.

False alarms: none on batches that were sent one after the other: what counts is one delegation. Where neither it nor
its tasks tell a phase, the default size is taken.

Tuning: `batch` of the board in a policy: a number for each phase, and `default`; 0 turns it off.

Reference: tickets requirement, "agent receives > 3 tasks (or > 5 for SPEC-phase agents) in a single delegation cycle".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Evidence, Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, RawTurn, actor, task_finding
from streamproc.model.wire import TaskDelegated

TASKS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes are the board's."""


class OversizedBatch:
    """TASK003."""

    code = "TASK003"
    name = "oversized_batch"
    kinds = kind.BOARD

    def check(self, view: View, limits: Limits) -> Finding | None:
        step, event = view.board_change, view.event
        if step is None or not isinstance(event, TaskDelegated):
            return None
        allowed = step.config.size(step.phase)
        if not 0 < allowed < step.batch:
            return None
        who = event.agent or "an agent"
        phase = f" in {step.phase}" if step.phase else ""
        return task_finding(
            view,
            self.code,
            f"{who} is given {step.batch} tasks at once{phase}, and {allowed} are allowed: decompose the batch.",
            Evidence(
                kind=self.name,
                count=step.batch,
                limit=allowed,
                unit="tasks",
                tasks=list(event.tasks[:TASKS_SHOWN]) or None,
                agent=actor(event),
                phase=step.phase or None,
            ),
            type="delegation.rejected",
        )


DETECTOR = OversizedBatch()


def _batch(size: int, **more: object) -> RawTurn:
    tasks = [f"T{n}" for n in range(size)]
    return {"type": "task.delegated", "agent": "backend-1", "tasks": tasks, **more}


HEALTHY = [
    Example("a batch of three", [_batch(3, phase="BUILD")]),
    Example("five in SPEC", [_batch(5, phase="SPEC")]),
    Example("three batches, one after the other", [_batch(3), _batch(2), _batch(3)]),
]
STUCK = [
    Example("four at once", [_batch(4, phase="BUILD")], "warn", 0),
    Example("six in SPEC", [_batch(6, phase="SPEC")], "warn", 0),
]
