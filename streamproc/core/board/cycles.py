"""Cycles of the board, from BUILD to VALIDATE: how many tasks each has completed."""

from __future__ import annotations

from streamproc.core.board.change import BoardChange, find_task
from streamproc.core.board.config import UNKNOWN, BoardConfig
from streamproc.core.board.owners import forget_deliveries
from streamproc.core.board.state import ASSUMED, Board, Task
from streamproc.core.run_state import RunState
from streamproc.model.wire import CycleCompleted


def end_cycle(run: RunState, change: BoardChange, event: CycleCompleted) -> None:
    """Apply the end of a cycle, unless it is one of another phase, such as SPEC, or has been reported."""
    board, config = change.board, change.config
    if event.phase and config.cycle_phases and not any(word in event.phase.upper() for word in config.cycle_phases):
        return
    if event.cycle:
        ended = [change.tag(event.cycle), board.events, run.turns]
        again, board.ended = board.ended == [ended[0], board.events - 1, run.turns], ended
        if again and not board.empty_cycles:  # a report that was sent twice, with nothing in between
            return
    board.cycles += 1
    change.cycled = True
    board.claimed = [tag for tag in board.claimed if tag in board.tasks and not _has_moved(board, board.tasks[tag])]
    completed = _completed(change, event)
    open_tasks = [task for task in board.tasks.values() if task.state < 0 or not config.done >> task.state & 1]
    if event.completed is not None or event.moved or board.tasks:
        change.completed = max(completed, board.done)
    if change.completed or (board.tasks and not open_tasks):
        board.empty_cycles = 0
    elif change.completed == 0:
        board.empty_cycles += 1
    board.done = 0
    forget_deliveries(board)


def _completed(change: BoardChange, event: CycleCompleted) -> int:
    """Apply the moves that a cycle lists, and return how many tasks it completed: those that the board refused are not.

    A task without a state is one of those that `event.completed` counts. If they are listed, each must be new: a list
    may hold all tasks so far.
    """
    board, config = change.board, change.config
    moved, refused = _apply_moves(change, event)
    named = [name for name, state in event.moved if not state]
    if not named:
        return max((event.completed or 0) - len(refused), len(moved))
    old = sum(name in refused or not _is_listed_first(board, config, change.tag(name)) for name in named)
    return max((event.completed or 0) - old, len(moved))


def _is_listed_first(board: Board, config: BoardConfig, tag: int) -> bool:
    """Whether a task that a cycle lists may have been completed in it. One of which no event tells the moves is
    believed, and one that the board knows in another state once, and again after it has moved: a team may report its
    ends by these lists alone."""
    task = board.tasks.get(tag)
    if task is None or task.state < 0 or task.flags & ASSUMED:
        return True
    if task.state == config.initial and sum(task.entered.values()) <= 1:
        return True
    if config.done >> task.state & 1:
        return bool(config.completed >> task.state & 1) and _has_moved(board, task)
    if tag in board.claimed:
        return False
    board.claimed.append(tag)
    return True


def _apply_moves(change: BoardChange, event: CycleCompleted) -> tuple[set[str], set[str]]:
    """Apply the moves that a cycle lists; return the tasks that they complete, and those listed that were refused."""
    board, config = change.board, change.config
    completed, refused, elsewhere = set(), set(), set()
    for name, state in event.moved:
        task = find_task(change, name) if state else board.tasks.get(change.tag(name))
        if task is None:
            continue
        target = config.find(state)
        done = target >= 0 and bool(config.completed >> target & 1)
        again = done and task.state >= 0 and bool(config.completed >> task.state & 1)
        if _was_refused(config, task, target):
            refused.add(name)
        elif done and (not again or name in elsewhere or _has_moved(board, task)):
            completed.add(name)
        if not state:
            continue
        if not done:
            elsewhere.add(name)
        if not again:
            task.since = board.cycles - done  # it was completed in the cycle that ends
        if task.state < 0 and target >= 0:
            task.state, task.flags = target, task.flags & ~ASSUMED
    return completed - refused, refused


def _has_moved(board: Board, task: Task) -> bool:
    """Whether a task has entered its state in the cycle that ends."""
    return task.since >= board.cycles - 1


def _was_refused(config: BoardConfig, task: Task, target: int) -> bool:
    """Whether the board has refused this completion of a task; for UNKNOWN, any."""
    refused = {task.wanted, task.skipped}
    return any(state >= 0 and config.completed >> state & 1 for state in refused if target in (UNKNOWN, state))
