"""Which state a move starts from: the task's own or, for a parked task, also the one before."""

from __future__ import annotations

from streamproc.core.board.config import BoardConfig
from streamproc.core.board.state import FREE, Task


def origin_of(config: BoardConfig, task: Task, target: int) -> int | None:
    """Return the state whose transition a move makes; None if the board has no such transition.

    A parked task may return to the state before, do what that state allows, or go to a state that the board lists. If
    the state before is not known, or is none of the board's, the move is believed.
    """
    source, back = task.state, task.back
    if not config.parked_states >> source & 1:
        return source if config.leads(source, target) else None
    if config.done >> source & 1:  # cancelled
        return source if config.allows(source, target) else None
    if target == back or back < 0 or (target >= 0 and config.parked_states >> target & 1):
        return source
    if config.leads(back, target) and not _waits_for_a_person(config, task, target):
        return back
    return source if config.allows(source, target) else None


def _waits_for_a_person(config: BoardConfig, task: Task, target: int) -> bool:
    """Whether a move would take an escalated task past its review: only an approval does."""
    if task.flags & FREE or task.state != config.escalated_state:
        return False
    return any(
        guard.verdict and target >= 0 and guard.sources >> task.back & guard.targets >> target & 1
        for guard in config.guards
    )
