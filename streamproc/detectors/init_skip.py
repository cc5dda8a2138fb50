"""TASK006 init_skip: work starts in a module that was not initialised.

Sees: a task that names its module enters IMPLEMENTING, and no initialisation checklist of that module has passed. The
move is blocked and the task goes to REWORK. At the second attempt a person is asked.

Why: code written into a module without its scaffolding is written twice.

False alarms: a checklist that passed once counts for every task of the module (the last 8 modules of a run). Tasks
without a module are not checked.

Tuning: `ask` is the attempt at which a person is asked. The guard `init` of the board lists the transitions that
require the checklist.

Reference: tickets requirement, "no passing initialization checklist"; "after 2 attempts → user notification".
"""

from __future__ import annotations

from streamproc.core.board.change import BoardChange
from streamproc.core.board.state import Task
from streamproc.detectors.base import Example, View, moved
from streamproc.detectors.board_detector import GuardDetector, module_of


class InitSkip(GuardDetector):
    code, name = "TASK006", "init_skip"

    class Limits:
        """Attempts to start."""

        ask: int = 2  # the agent gets one attempt to run the initialisation

    def asks_at(self, limits: Limits) -> int:
        return limits.ask

    def problem(self, view: View, step: BoardChange, task: Task) -> str:
        of = f" of {module}" if (module := module_of(view.event, task)) else " of its module"
        to = step.config.name(step.target)
        return f"{task.id} cannot move to {to}: {', '.join(step.missing)}{of} missing or failing"


DETECTOR = InitSkip()
_TASK = {"type": "task.created", "task_id": "T1", "module": "billing"}
HEALTHY = [
    Example("the checklist passed", [_TASK, *moved("T1", "READY", "LOCKED", "IMPLEMENTING", init={"allPassed": True})]),
    Example("another task initialised the module", [
        _TASK, {"type": "task.created", "task_id": "T2", "module": "billing"},
        *moved("T1", "LOCKED", "IMPLEMENTING", init_checklist=True), *moved("T2", "LOCKED", "IMPLEMENTING"),
    ]),
    Example("a task without a module", moved("T1", "READY", "LOCKED", "IMPLEMENTING")),
]  # fmt: skip
STUCK = [
    Example("no checklist", [_TASK, *moved("T1", "READY", "LOCKED", "IMPLEMENTING")], "warn", 0),
    Example("an item fails", [_TASK, *moved(
        "T1", "LOCKED", "IMPLEMENTING", init={"allPassed": False, "items": {"lint": True, "ci": False}},
    )], "warn", 0),
]  # fmt: skip
