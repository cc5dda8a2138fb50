"""Tasks that a decision holds in a parked state, and what releases them.

A task is held until an event names the root cause (it swings, or fails in the same way), a person approves it (it is
escalated, or any of these), or it no longer fails.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.board.change import BoardChange, Tag, board_of, find_task, note_failed
from streamproc.core.board.config import UNKNOWN, BoardConfig, state_name
from streamproc.core.board.ends import end_task
from streamproc.core.board.guards import close_gates, open_gates, pass_verdicts
from streamproc.core.board.owners import task_in_progress
from streamproc.core.board.state import (
    ASSUMED,
    FREE,
    HELD,
    HELD_APPROVAL,
    HELD_CAUSE,
    HELD_ERROR,
    HELD_REPORTED,
    Task,
    shrink,
)
from streamproc.core.decision import OSCILLATING, STALLED, Finding, Level
from streamproc.core.run_scope import change_scope
from streamproc.core.run_state import RunState
from streamproc.model.wire import DecisionRecorded, Event, Turn

# How a decision begins that approves no result.
NO_APPROVAL: Final = ("CANCEL", "REASSIGN", "REJECT", "REDELEGATE", "WITHDRAW", "REVOKE", "DENY", "DENIED")
STATUSES: Final = ("blocked", "stalled", "escalated")


def settle(
    run: RunState, finding: Finding, event: Event, config: BoardConfig, tag: Tag, change: BoardChange | None
) -> BoardChange | None:
    """Apply a decision on a task: it is blocked, stalled, escalated or out of budget now. `change` is the effect of the
    event that it is about. Return the failure of a task that this effect does not have: the decision is about a turn,
    or about another task."""
    end_task(run, finding, event)
    board, status, code = run.board, finding.task_status, finding.code
    if board is None or status not in STATUSES:
        return None
    task = board.tasks.get(tag(finding.task) if finding.task else run.scope.task)
    if task is None:
        return None
    forced = {"blocked": config.blocked_state, "stalled": config.stalled_state, "escalated": config.escalated_state}[
        status
    ]
    if status != "escalated" and task.flags & HELD_APPROVAL:
        return None  # a person decides about it: nothing less releases it
    if status == "stalled":
        task.flags |= FREE
    else:
        held = HELD_APPROVAL if status == "escalated" else HELD_ERROR if code == "ERROR002" else HELD_CAUSE
        task.flags = task.flags & ~(HELD_REPORTED | FREE) | held
    if forced not in (task.state, UNKNOWN):  # without such a state, the task is held where it is
        if not config.parked_states >> max(task.state, 0) & 1:
            task.back = task.state
        task.state, task.since = forced, board.cycles
        task.flags &= ~ASSUMED
        own = change if change is not None and change.task is task else BoardChange(board, config, tag)
        own.task, own.blocked = task, bool(config.blocked >> forced & 1)
        if config.failed >> forced & 1:
            note_failed(own, task)
        return None if own is change or not own.failed else own
    return None


def start_task(run: RunState, task_id: str, config: BoardConfig, tag: Tag) -> None:
    """Note the task that a run is started for. Under a policy with `tasks_of_turns`, it is on the board."""
    change_scope(run, task=tag(task_id))
    if config.tasks_of_turns:
        find_task(BoardChange(board_of(run, config), config, tag), task_id)


def stall(run: RunState, finding: Finding, event: Event, config: BoardConfig, tag: Tag) -> None:
    """Let a finding that halts a loop stall the task that the turn works on, if that is open. A turn that names no task
    works on the one that its agent has in progress, or was given. Without a board (the policy has `tasks_of_turns`),
    only a task that the turn names can be stalled."""
    loops = finding.level == Level.HALT and finding.reason in (STALLED, OSCILLATING) and not finding.task_status
    if not loops or type(event) is not Turn:
        return
    if run.board is None:
        if event.task_id:
            _stall(finding, event.task_id, "", config)
        return
    task = task_of(run, event, config, tag)
    if task is None and event.task_id:
        key = tag(event.task_id)
        task = run.board.tasks[key] = Task(event.task_id, since=run.board.cycles)
        run.evicted += shrink(run.board, config, key)
    if task is None or task.flags & HELD or (task.state >= 0 and config.done >> task.state & 1):
        return
    _stall(finding, task.id, config.name(task.state), config)


def task_of(run: RunState, turn: Turn, config: BoardConfig, tag: Tag) -> Task | None:
    """Return the task on the board that a turn works on: the one that it names, else the one that the run was started
    for, else the one that its agent has in progress, or was given."""
    if run.board is None:
        return None
    key = tag(turn.task_id) if turn.task_id else run.scope.task
    found: Task | None = run.board.tasks.get(key or task_in_progress(run.board, config, turn.agent or turn.node))
    return found


def _stall(finding: Finding, task: str, state: str, config: BoardConfig) -> None:
    finding.task, finding.task_status = task, "stalled"
    finding.message = f"{finding.message} {task} is stalled."
    if finding.status == "aborted_stuck":
        finding.status = "stalled"
    states = {"from_state": state or None, "to_state": config.name(config.stalled_state) or None}
    finding.evidence = msgspec.structs.replace(finding.evidence, **states)


def holder(task: Task) -> str:
    """Return the code of the rule that holds a task."""
    return "TASK008" if task.flags & HELD_APPROVAL else "ERROR002" if task.flags & HELD_ERROR else "TASK001"


def decide(change: BoardChange, event: DecisionRecorded) -> None:
    """Apply a person's decision: it releases a held task, and an approval also opens the gates that it may override."""
    if not event.task_id:
        return
    task = change.task = find_task(change, event.task_id)
    if not event.approved_by:
        return  # no person approved it
    word = state_name(event.decision).replace("_", "")
    if word.startswith(NO_APPROVAL):
        if task.flags & HELD:
            change.overridden.append((holder(task), ""))
            release(task)
        close_gates(change.config, task)
    elif task.flags & HELD:
        approve(change, task)
    else:
        open_gates(change.board, change.config, task, change.overridden)


def approve(change: BoardChange, task: Task) -> None:
    """Release a task that a person approved. If it was escalated, the approval replaces the missing verdicts, and it
    may continue as from the state before."""
    if task.flags & HELD:
        change.overridden.append((holder(task), ""))
        if task.flags & HELD_APPROVAL:
            pass_verdicts(change.config, task)
        task.flags |= FREE
    release(task)


def release(task: Task) -> None:
    """Release a held task, and reset everything that counted against it."""
    task.flags &= ~(HELD | HELD_REPORTED)
    task.rejected, task.rejections, task.entered, task.failure = 0, [], {}, []


def forgive(run: RunState, key: int) -> None:
    """Forget the failures of a task in a row: nothing has failed this time."""
    task = run.board.tasks.get(key)
    if task is not None:
        task.failure = []


def recover(task: Task) -> None:
    """Release a task that no longer fails, and return it to where it was."""
    release(task)
    if task.back >= 0:
        task.state = task.back
