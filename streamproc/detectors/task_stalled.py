"""STALL005 task_stalled: a task in progress does not change its state.

Sees: a task in a state that the board lists under `in_progress` and that has not changed for more than two whole
cycles from BUILD to VALIDATE. The task is then STALLED. Also sees a task that the team itself moves to that state.

Why: its owner has lost track of it; rescope the task, or assign it to another agent.

False alarms: any change of state counts as movement, forward or back. The cycle in which the task last moved counts
when it is completed.

Tuning: `warn` and `halt` are the cycles that a task may stay unchanged; past `halt` the run is halted, too (0: it
continues with its other tasks).

Reference: tickets requirement, "in `in_progress` status for > 2 full BUILD→VALIDATE cycles without status change".
"""

from __future__ import annotations

from streamproc.core.board.state import FREE, HELD
from streamproc.detectors.base import Example, Finding, Level, View, cycles, moved
from streamproc.detectors.board_detector import BoardDetector, owner


class TaskStalled(BoardDetector):
    code, name = "STALL005", "task_stalled"
    evidence = "count", "limit", "unit", "last_valid", "agent"

    class Limits:
        """Cycles without a change of state."""

        warn: int = 2  # large tasks take one cycle, some two
        halt: int = 0  # one stalled task is no reason to stop the board's other tasks

    def check(self, view: View, limits: Limits) -> tuple[Finding, ...] | None:
        step = view.board_change
        if step is None or not step.cycled:
            return self._parked(view)
        board, config, found = step.board, step.config, list[Finding]()
        for task in board.tasks.values():
            if task.state < 0 or not config.progress >> task.state & 1 or task.flags & FREE:
                continue
            still = board.cycles - task.since
            halts = 0 < limits.halt < still
            if not halts and not 0 < limits.warn < still:
                continue
            state, agent = config.name(task.state), owner(view, task.id)
            whom = f"stop {agent}, and " if agent else ""
            message = f"{task.id} has been in {state} for {still} cycles and is stalled; {whom}rescope or reassign it."
            finding = self.task_finding(
                view, message, Level.HALT if halts else Level.WARN, len(found), task=task.id, node=agent or "",
                action="ask_human", task_status="stalled", count=still, limit=limits.halt if halts else limits.warn,
                unit="cycles", last_valid=state, agent=agent,
            )  # fmt: skip
            found.append(finding)
        return tuple(found)

    def _parked(self, view: View) -> tuple[Finding, ...] | None:
        """Return a finding for a task that the team has moved to the stalled state, unless a decision holds it."""
        step = view.board_change
        if step is None or step.task is None or step.refused or step.task.flags & HELD:
            return None
        task, config = step.task, step.config
        if not 0 <= step.target == task.state == config.stalled_state != step.source:
            return None
        agent = owner(view, task.id)
        finding = self.task_finding(
            view, f"{task.id} was moved to {config.name(task.state)}; rescope or reassign it.", node=agent or "",
            action="ask_human", task_status="stalled", last_valid=config.name(step.source) or None, agent=agent,
        )  # fmt: skip
        return (finding,)


DETECTOR = TaskStalled()
HEALTHY = [
    Example("a change of state in every other cycle", [
        *moved("T1", "LOCKED", "IMPLEMENTING"), *cycles(1, 1), *moved("T1", "IMPLEMENTING", "QA_REVIEW"),
        *cycles(1, 1), *moved("T1", "QA_REVIEW", "REWORK"), *cycles(1, 1),
    ]),
    Example("a task that was not started", [{"type": "task.created", "task_id": "T1"}, *cycles(1, 1, 1, 1)]),
    Example("a task that is done", [*moved("T1", "COMMIT", "DONE"), *cycles(1, 1, 1, 1)]),
]  # fmt: skip
STUCK = [
    Example("implementing for three cycles", [*moved("T1", "LOCKED", "IMPLEMENTING"), *cycles(1, 1, 1)], "warn", 0),
    Example("the team moves it to STALLED", moved("T1", "IMPLEMENTING", "STALLED"), "warn", 0),
    Example("the states of a to-do list", [
        {"type": "task.transition", "task_id": "T1", "to": "in_progress"}, *cycles(1, 1, 1),
    ], "warn", 0),
]  # fmt: skip
