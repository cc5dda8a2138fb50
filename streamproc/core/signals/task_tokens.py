"""Token budgets of tasks: the escalation levels (rungs) of `max_token_budget`.

A turn counts for the task that it names, else for the task that the run was started for. Delegating a task again with
a budget starts its count again. Memory: `TASKS_MAX` tasks; past it, the oldest is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from streamproc.core.signals.spend import SPEND_MAX
from streamproc.model.wire import TaskDelegated, Turn

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

TASKS_MAX: Final = 8  # tasks with a token budget; a batch has at most five
RUNGS: Final = ("warning", "restrict", "urgent", "hard_stop", "violation")


class TaskTokens(msgspec.Struct, array_like=True):
    """The token budget of one task."""

    limit: int  # tokens
    used: int = 0  # tokens
    rung: int = 0  # how many levels of `RUNGS` it has reached
    since: int = 0  # turn from which it counts


def grant_tokens(run: RunState, event: TaskDelegated, tag: Callable[[str], int]) -> None:
    """Set the budget of every task of a delegation."""
    if event.max_token_budget is None:
        return
    for task in dict.fromkeys((*event.tasks, event.task_id)[-TASKS_MAX:]):
        if task:
            _keep(run, tag(task), TaskTokens(event.max_token_budget, since=run.turns))


def spend_tokens(
    run: RunState, turn: Turn, task: int, default: int | None, percents: Sequence[int]
) -> TaskTokens | None:
    """Count a turn's tokens, and return the task's budget if it reaches another rung. `default` is the budget of tasks
    that were delegated without one."""
    spent: TaskTokens | None = run.task_tokens.get(task)
    if spent is None:
        if default is None:
            return None
        spent = _keep(run, task, TaskTokens(default, since=run.turns))
    usage = turn.usage
    if usage is None:
        return None
    spent.used = min(spent.used + (usage.total_tokens or usage.input_tokens + usage.output_tokens), SPEND_MAX)
    rung = rung_of(spent.used, spent.limit, percents)
    if rung <= spent.rung:
        return None
    spent.rung = rung
    return spent


def rung_of(used: int, limit: int, percents: Sequence[int]) -> int:
    """Return the number of the highest rung reached; 0: none. A percentage of 0 turns its rung off."""
    if used > limit:
        return len(RUNGS)
    reached = 0
    for place, percent in enumerate(percents, 1):
        if percent and used * 100 >= limit * percent:
            reached = place
    return reached


def _keep(run: RunState, task: int, tokens: TaskTokens) -> TaskTokens:
    run.cold.task_tokens.pop(task, None)
    run.cold.task_tokens[task] = tokens
    run.has_task_tokens = True
    run.size_left = 0
    if len(run.cold.task_tokens) > TASKS_MAX:
        del run.cold.task_tokens[next(iter(run.cold.task_tokens))]
        run.evicted += 1
    return tokens
