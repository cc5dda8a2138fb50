"""TASK003 oversized_batch: an agent is given too many tasks at once.

Sees: more tasks for one agent within one cycle than the board allows in their phase: three, or five in SPEC. All
deliveries to an agent count together until the cycle is completed (`cycle.completed`), those by ids and those by their
number. A task that is done, or that another agent gets, no longer counts; a batch that is rejected was not given.

Why: an agent with ten tasks in its context finishes none of them; the batch must be split first.

False alarms: a team that never sends `cycle.completed` stays in its first cycle, so a task counts until it is done.
Tasks of which the board knows nothing but their delegation, or their number, count until their agent (as `node`) takes
a turn. If neither the delegation nor its tasks name a phase, the default size applies.

Tuning: `batch` of the board in a policy: a number for each phase, and `default`; 0 turns it off.

Reference: tickets requirement, "agent receives > 3 tasks (or > 5 for SPEC-phase agents) in a single delegation cycle".
"""

from __future__ import annotations

from streamproc.detectors.base import Example, Finding, RawTurn, View, actor, moved
from streamproc.detectors.board_detector import BoardDetector
from streamproc.model.wire import TaskDelegated

TASKS_SHOWN = 12


class OversizedBatch(BoardDetector):
    code, name = "TASK003", "oversized_batch"
    evidence = "count", "limit", "unit", "agent", "phase", "tasks"

    class Limits:
        """None of its own: the sizes are the board's."""

    def check(self, view: View, limits: Limits) -> Finding | None:
        step, event = view.board_change, view.event
        if step is None or not isinstance(event, TaskDelegated):
            return None
        allowed = step.config.size(step.phase)
        if not 0 < allowed < step.batch:
            return None
        agent = event.agent or "An agent"
        phase = f" in {step.phase}" if step.phase else ""
        how = f"in one cycle ({step.earlier} of them before)" if step.earlier else "at once"
        message = f"{agent} was given {step.batch} tasks {how}{phase}, but {allowed} are allowed; split the batch."
        return self.task_finding(
            view, message, type="delegation.rejected", count=step.batch, limit=allowed, unit="tasks",
            tasks=list(event.tasks[:TASKS_SHOWN]) or None, agent=actor(event), phase=step.phase or None,
        )  # fmt: skip


DETECTOR = OversizedBatch()


def _batch(size: int, **more: object) -> RawTurn:
    tasks = [f"T{n}" for n in range(size)]
    return {"type": "task.delegated", "agent": "backend-1", "tasks": tasks, **more}


HEALTHY = [
    Example("a batch of three", [_batch(3, phase="BUILD")]),
    Example("five in SPEC", [_batch(5, phase="SPEC")]),
    Example("three batches of the same tasks, one after another", [_batch(3), _batch(2), _batch(3)]),
    Example("two tasks in each of two cycles", [
        _batch(2), {"type": "cycle.completed", "completed": 2}, _batch(2, tasks=["T8", "T9"]),
    ]),
    Example("a fourth task after one is done", [_batch(3), *moved("T0", "COMMIT", "DONE"), _batch(1, tasks=["T9"])]),
]  # fmt: skip
STUCK = [
    Example("four at once", [_batch(4, phase="BUILD")], "warn", 0),
    Example("six in SPEC", [_batch(6, phase="SPEC")], "warn", 0),
    Example("two and two in one cycle", [_batch(2), _batch(2, tasks=["T8", "T9"])], "warn", 0),
    Example("two and two by their number", [_batch(0, count=2), _batch(0, count=2)], "warn", 0),
]  # fmt: skip
