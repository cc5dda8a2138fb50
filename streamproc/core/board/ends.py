"""Tasks that a rule has ended while their run goes on, until an event lets them go on as well.

A task ends as `blocked`, `stalled`, `escalated` or `budget_exceeded`. A guard for the task, or for the agent that owns
it, is cancelled then (`task.ended`, `task.escalated`), and refuses new work as long as the status of the run names the
task: until its root cause is recorded, a person decides, it moves, or it is delegated again.
"""

from __future__ import annotations

from typing import Any

from streamproc.core.board.change import BoardChange
from streamproc.core.board.state import HELD
from streamproc.core.decision import Finding, Level
from streamproc.core.run_state import RunState
from streamproc.model.controls import EndedTask
from streamproc.model.wire import BoardEvent, DecisionRecorded, Event, TaskDelegated, TaskTransition

ENDED_MAX = 8  # tasks of one run; past it, the oldest is forgotten, and counts as resumed
ENDED_CHARS = 480  # of their ids and agents, together: they share 4 KiB with the rest of the state


def ended_tasks(run: RunState) -> list[EndedTask]:
    """Return the tasks of a run that have ended, oldest first."""
    if not run.cold_raw and run.cold_read is None:
        return []
    ended: Any = run.cold.ended_tasks
    return [EndedTask(task_id=task, terminal_status=how[0], code=how[1], agent=how[2]) for task, how in ended.items()]


def end_task(run: RunState, finding: Finding, event: Event) -> None:
    """Record that a finding ends a task, unless it halts the whole run."""
    ended, task = run.cold.ended_tasks, finding.task or event.task_id
    if not task or finding.level is Level.HALT:
        return
    ended.pop(task, None)
    ended[task] = [finding.task_status, finding.code, finding.evidence.agent or ""]
    while len(ended) > 1 and (len(ended) > ENDED_MAX or _chars(ended) > ENDED_CHARS):
        del ended[next(iter(ended))]


def resume_tasks(run: RunState, change: BoardChange, event: BoardEvent) -> None:
    """Forget the ends of the tasks that an event lets go on. The status of the run says so."""
    for end in ended_tasks(run):
        if _goes_on(end, change, event):
            del run.cold.ended_tasks[end.task_id]


def may_resume_tasks(run: RunState, event: Event) -> bool:
    """Return whether an event may let tasks of a run go on: it is about the board of a run with tasks that ended."""
    return run.has_board and isinstance(event, BoardEvent) and bool(run.cold.ended_tasks)


def _chars(ended: dict[str, list[str]]) -> int:
    return sum(len(task) + len(how[2]) for task, how in ended.items())


def _goes_on(end: EndedTask, change: BoardChange, event: BoardEvent) -> bool:
    task = change.board.tasks.get(change.tag(end.task_id))
    named = event.task_id == end.task_id or (isinstance(event, TaskDelegated) and end.task_id in event.tasks)
    decided = isinstance(event, DecisionRecorded) and bool(event.approved_by)
    if end.terminal_status == "stalled":
        return named and (decided or isinstance(event, TaskTransition | TaskDelegated))
    if end.terminal_status == "budget_exceeded" or task is None:
        return named and (decided or isinstance(event, TaskDelegated))
    return not task.flags & HELD
