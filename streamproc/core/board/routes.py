"""Which state a move starts from: the task's own or, for a parked task, also the one before."""

from __future__ import annotations

from streamproc.core.board.config import BoardConfig
from streamproc.core.board.state import FREE, Task


def origin_of(config: BoardConfig, task: Task, target: int) -> int | None:
    """Return the state whose transition a move makes; None if the board has no such transition.

    A parked task may return to the state before, do what that state allows, or go to a state that the board lists, if
    it skips none. If the state before is not known, or is none of the board's, the move is believed.
    """
    source, back = task.state, task.back
    if not config.parked_states >> source & 1:
        return source if _leads(config, task, source, target) else None
    if config.done >> source & 1:  # cancelled
        return source if config.allows(source, target) else None
    if target == back or back < 0 or (target >= 0 and config.parked_states >> target & 1):
        return source
    if _leads(config, task, back, target) and not _waits_for_a_person(config, task, target):
        return back
    # Of a task that no move took to the state before, it is only assumed; and one that is released works again.
    resumes = back not in task.entered or config.resumes(back, target)
    return source if config.allows(source, target) and resumes else None


def _leads(config: BoardConfig, task: Task, source: int, target: int) -> bool:
    """Whether a state leads to another one. A task that was in a state behind a check of the path, or tried to skip to
    one (`note_skip`), is none of a to-do list, and is not done without its checks."""
    if not config.leads(source, target):
        return False
    ends = source >= 0 and target >= 0 and config.done >> target & 1 and not config.judged(source)
    return not ends or all(config.leads(source, state) for state in task.entered if state >= 0)


def note_skip(config: BoardConfig, task: Task, target: int) -> None:
    """Note that a task in a state of a to-do list has tried to skip to a state of the path: as never entered."""
    source = task.back if task.state >= 0 and config.parked_states >> task.state & 1 else task.state
    if source >= 0 and target >= 0 and not config.judged(source):
        task.entered.setdefault(target, 0)


def _waits_for_a_person(config: BoardConfig, task: Task, target: int) -> bool:
    """Whether a move would take an escalated task past its review: only an approval does."""
    if task.flags & FREE or task.state != config.escalated_state:
        return False
    return any(
        guard.verdict and target >= 0 and guard.sources >> task.back & guard.targets >> target & 1
        for guard in config.guards
    )
