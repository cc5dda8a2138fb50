"""TASK007 design_gate: a task that changes the user interface starts without its design.

Sees: a UI-touching task enters IMPLEMENTING while its design ticket is not done, or while one of the artifacts is
missing: mockup, interaction-spec, component-hierarchy, state-variations, accessibility-checklist. The move is blocked
and the task goes to REWORK.

Why: an interface built without its design is built twice.

False alarms: a dependency that is done and has no known kind counts as the design ticket. An approval that names a
person opens the gate; an `override` without a name does not.

Tuning: the guard `design` of the board: `items`, `ticket`, `override`. `design_kinds` lists words in the kind, agent
or id of a task that mark it as a design ticket.

Reference: tickets requirement, "UI/UX gate bypass"; "override requires explicit user approval".
"""

from __future__ import annotations

from streamproc.core.board.change import BoardChange
from streamproc.core.board.state import Task
from streamproc.detectors.base import Example, RawTurn, View, moved
from streamproc.detectors.board_detector import GuardDetector


class DesignGate(GuardDetector):
    code, name = "TASK007", "design_gate"

    class Limits:
        """None of its own: the gate is a guard of the board."""

    def problem(self, view: View, step: BoardChange, task: Task) -> str:
        to, missing = step.config.name(step.target), ", ".join(step.missing)
        return f"{task.id} changes the user interface and cannot move to {to} without a design: {missing} missing"


DETECTOR = DesignGate()
_ALL = ["mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist"]
_TASKS: list[RawTurn] = [
    {"type": "task.created", "task_id": "D1", "kind": "design"},
    {"type": "task.created", "task_id": "T1", "kind": "frontend", "ui_touching": True, "depends_on": ["D1"]},
]
HEALTHY = [
    Example("the design is complete", [
        *_TASKS, *moved("D1", "COMMIT", "DONE"),
        *moved("T1", "LOCKED", "IMPLEMENTING", artifacts=[f"docs/uiux/login/{name}.md" for name in _ALL]),
    ]),
    Example("a task that does not change the user interface", moved("T1", "LOCKED", "IMPLEMENTING", ui_touching="no")),
]  # fmt: skip
STUCK = [
    Example("the design ticket is not done", [
        *_TASKS, *moved("T1", "LOCKED", "IMPLEMENTING", artifacts=_ALL),
    ], "warn", 0),
    Example("an artifact is missing", [
        *_TASKS, *moved("D1", "COMMIT", "DONE"), *moved("T1", "LOCKED", "IMPLEMENTING", artifacts=_ALL[:-1]),
    ], "warn", 0),
    Example("an override without a name", [*_TASKS, *moved("T1", "LOCKED", "IMPLEMENTING", override=True)], "warn", 0),
]  # fmt: skip
