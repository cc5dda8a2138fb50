"""Attempts at several tasks that are repaired in turn: each failure is compared with the last one of its own task.

`node_errors` compares an attempt with the one before it, of the run and of its node. Outcomes of other tasks, between
or right before, are no attempts at this task, so each task has its own last failure here. A node counts by its name
without numbers: `attempt-1` and `attempt-2` try again, and nodes of other names may report one attempt together.
Memory: the last failures of `TASKS_MAX` tasks; past it, that of the task that failed longest ago is dropped. Only if
every error counts. Read by ERROR001.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.now import Now
from streamproc.core.signals.node_errors import failure_of, unnumbered
from streamproc.model.wire import ANSWERED, Turn

TASKS_MAX: Final = 8  # tasks that are repaired in turn


class TaskAttempt(msgspec.Struct, array_like=True):
    """The failure that the last attempts at a task ended in."""

    failure: int  # tag
    node: int  # tag of the name of the node that reported it, without numbers
    tool: int  # tag of the tool whose call failed; 0: the failure was reported
    count: int  # attempts in a row
    first: int  # turn of the first one
    last: int  # turn of the last one
    alone: bool = True  # whether no other task has failed right before, or had an outcome since the first one


def observe_task_attempt(now: Now, kept: dict[int, TaskAttempt], *, failed: bool) -> TaskAttempt | None:
    """Record the outcome of a turn at its task; `kept` has the last failures of tasks, the latest last. Return
    the attempt if it repeats the one before at this task, and other tasks have had outcomes beside it.

    A success ends the streak: an empty list of errors, which concerns every task if it names none, or an answer of the
    tool that had failed. Measured progress starts it again. A retryable error right after the same one is a retry.
    """
    turn: Turn = now.turn
    if not turn.task_id:
        if turn.errors is not None and not failed:
            kept.clear()
        return None
    task, errors = now.names.tag(turn.task_id), turn.errors or turn.call_errors
    known = kept.get(task)
    if failed or turn.errors is not None:
        for other, attempt in kept.items():
            attempt.alone = attempt.alone and other == task
    if not failed or errors is None:
        if known is not None and (turn.errors is not None or _answers(now, known.tool)):
            del kept[task]
        return None
    tool = now.names.tag(errors.error_class) if turn.errors is None and turn.calls else 0
    failure, node = failure_of(now, errors, True), now.names.tag(unnumbered(turn.node))
    kept.pop(task, None)
    same = known is not None and (known.failure, known.node, known.tool) == (failure, node, tool)
    if known is None or not same or now.novelty.last_progress > known.first:
        alone = all(other.last < now.index - 1 for other in kept.values())
        known = TaskAttempt(failure, node, tool, 0, now.index, now.index, alone)
    retried = errors.retryable and turn.artifact is None and known.last == now.index - 1
    known.count += not retried
    known.last = now.index
    kept[task] = known
    if len(kept) > TASKS_MAX:
        del kept[next(iter(kept))]
        now.evicted += 1
    return known if known.count > 1 and not known.alone else None


def attempted_task(now: Now, kept: dict[int, TaskAttempt]) -> int:
    """Return the tag of the task that a turn is an attempt at, while `now.task` is 0; 0: none, or not known. An error
    that names no task is one of the only task that has failed, and the first task that fails takes over the failure
    that named none."""
    turn: Turn = now.turn
    errors = turn.errors or turn.call_errors
    if not turn.task_id:
        return next(iter(kept)) if len(kept) == 1 and errors is not None else 0
    first = not kept and errors is not None and now.node.attempts.value == failure_of(now, errors, True)
    return 0 if first else now.names.tag(turn.task_id)


def _answers(now: Now, tool: int) -> bool:
    return tool != 0 and any(call.outcome == ANSWERED and now.names.tag(call.name) == tool for call in now.turn.calls)
