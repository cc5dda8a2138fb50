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

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, moved, override, refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """Attempts to start."""

    ask: int = 2  # the agent gets one attempt to run the initialisation


class InitSkip:
    """TASK006."""

    code = "TASK006"
    name = "init_skip"
    kinds = kind.BOARD

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None or step.refused != self.code or step.attempts not in (1, limits.ask):
            return override(view, self.code, self.name)
        config, task = step.config, step.task
        of = f" of {module}" if (module := getattr(view.event, "module", "")) else " of its module"
        missing = ", ".join(step.missing)
        message = f"{task.id} cannot move to {config.name(step.target)}: {missing}{of} missing or failing"
        if step.attempts < limits.ask or step.attempts == 1:
            return refusal(view, self.code, self.name, f"{message}; its state is {config.name(task.state)}.")
        message = f"{message}, at attempt {step.attempts}; a person should look at it."
        return refusal(view, self.code, self.name, message, action="ask_human")


DETECTOR = InitSkip()

_TASK = {"type": "task.created", "task_id": "T1", "module": "billing"}

HEALTHY = [
    Example("the checklist passed", [
        _TASK, *moved("T1", "READY", "LOCKED", "IMPLEMENTING", init={"allPassed": True}),
    ]),
    Example("another task initialised the module", [
        _TASK,
        {"type": "task.created", "task_id": "T2", "module": "billing"},
        *moved("T1", "LOCKED", "IMPLEMENTING", init_checklist=True),
        *moved("T2", "LOCKED", "IMPLEMENTING"),
    ]),
    Example("a task without a module", moved("T1", "READY", "LOCKED", "IMPLEMENTING")),
]  # fmt: skip
STUCK = [
    Example("no checklist", [_TASK, *moved("T1", "READY", "LOCKED", "IMPLEMENTING")], "warn", 0),
    Example("an item fails", [_TASK, *moved(
        "T1", "LOCKED", "IMPLEMENTING", init={"allPassed": False, "items": {"lint": True, "ci": False}},
    )], "warn", 0),
]  # fmt: skip
