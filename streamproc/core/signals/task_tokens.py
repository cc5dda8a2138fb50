"""Token budgets of tasks: the escalation levels (rungs) of `max_token_budget`.

A turn counts for the task that it names, else for the task that the run was started for, else for the only one that
its agent has in progress. Delegating a task again with a budget starts its count again. Memory: `TASKS_MAX` tasks, as
many as a board keeps; past it, the one that was neither granted nor spent any tokens for the longest time is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streamproc.core.signals.spend import SPEND_MAX
from streamproc.model.wire import TaskDelegated, Usage

TASKS_MAX: Final = 32  # tasks with a token budget
RUNGS: Final = ("warning", "restrict", "urgent", "hard_stop", "violation")


class TaskTokens(msgspec.Struct, array_like=True):
    """The token budget of one task."""

    limit: int  # tokens
    used: int = 0  # tokens
    rung: int = 0  # how many levels of `RUNGS` it has reached
    since: int = 0  # turn from which it counts


def grant_tokens(kept: dict[int, TaskTokens], event: TaskDelegated, tag: Callable[[str], int], turn: int) -> None:
    """Set the budget of every task of a delegation, from this turn on."""
    if event.max_token_budget is None:
        return
    for task in dict.fromkeys((*event.tasks, event.task_id)[-TASKS_MAX:]):
        if task:
            key = tag(task)
            kept.pop(key, None)
            kept[key] = TaskTokens(event.max_token_budget, since=turn)


def spend_tokens(
    kept: dict[int, TaskTokens], usage: Usage, task: int, default: int | None, percents: Sequence[int], turn: int
) -> TaskTokens | None:
    """Count the tokens that a turn has used, and return the task's budget if it reaches another rung. `default` is the
    budget of tasks that were delegated without one."""
    spent = kept.pop(task, None)
    if spent is None:
        if default is None:
            return None
        spent = TaskTokens(default, since=turn)
    kept[task] = spent
    spent.used = min(spent.used + (usage.total_tokens or usage.input_tokens + usage.output_tokens), SPEND_MAX)
    rung = rung_of(spent.used, spent.limit, percents)
    if rung <= spent.rung:
        return None
    spent.rung = rung
    return spent


def drop_idle(kept: dict[int, TaskTokens]) -> int:
    """Drop the tasks past the cap that were idle for the longest time, and return how many."""
    over = max(0, len(kept) - TASKS_MAX)
    for key in list(kept)[:over]:
        del kept[key]
    return over


def rung_of(used: int, limit: int, percents: Sequence[int]) -> int:
    """Return the number of the highest rung reached; 0: none. A percentage of 0 turns its rung off."""
    if used > limit:
        return len(RUNGS)
    reached = 0
    for place, percent in enumerate(percents, 1):
        if percent and used * 100 >= limit * percent:
            reached = place
    return reached
