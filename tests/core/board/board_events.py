"""Raw events of tasks, for tests of boards."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.feeding import Raw


def created(task: str, **more: Any) -> Raw:
    return {"type": "task.created", "task_id": task, **more}


def given(agent: str, *tasks: str, **more: Any) -> Raw:
    return {"type": "task.delegated", "agent": agent, "tasks": list(tasks), **more}


def move(task: str, source: str, to: str, **more: Any) -> Raw:
    return {"type": "task.transition", "task_id": task, "from": source, "to": to, **more}


def moves(task: str, *states: str, **more: Any) -> list[Raw]:
    """Return the moves along `states`, each with the fields `more`."""
    return [move(task, source, to, **more) for source, to in pairwise(states)]


def cycle(completed: Any = 1, **more: Any) -> Raw:
    return {"type": "cycle.completed", "completed": completed, **more}
