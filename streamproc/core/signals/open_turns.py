"""Open turns: `turn.started` opens one, and a turn of the same node ends it.

Publishers are not always precise. A clock that runs too long would halt a healthy run, while one that stops too early
only misses a stall. So a node has at most one open turn a task, the latest; and a turn without a task ends all open
turns of its node. Memory: `OPEN_MAX` open turns; past it, the oldest is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from streamproc.model.wire import Turn, TurnStarted

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

OPEN_MAX: Final = 6  # turns that started and have not ended: one a node at a time, and few nodes work at once
NAME_MAX: Final = 32  # characters of a node's name; most are shorter, and a state may hold six


class OpenTurn(msgspec.Struct, array_like=True):
    """A turn that started and has not ended."""

    node: int  # tag; 0: not reported
    task: int  # tag; 0: not reported
    name: str  # the node's name, for messages
    started_ms: int  # log time of its start


def start_turn(run: RunState, event: TurnStarted, tag: Callable[[str], int]) -> None:
    """Open a turn. If the event names no node, the next turn of any node ends it."""
    node = tag(event.node) if event.node else 0
    task = tag(event.task_id) if event.task_id else 0
    open_ = [turn for turn in run.cold.open_turns if (turn.node, turn.task) != (node, task)]
    open_.append(OpenTurn(node, task, event.node[:NAME_MAX], run.at_ms))
    if len(open_) > OPEN_MAX:
        del open_[0]
        run.evicted += 1
    _keep(run, open_)


def end_turn(run: RunState, turn: Turn, node: int, tag: Callable[[str], int]) -> int:
    """End the open turns that a turn completes, and return the ms of log time it took (0: not known to be open)."""
    task = tag(turn.task_id) if turn.task_id else 0
    ended: list[OpenTurn] = [open_ for open_ in run.cold.open_turns if _matches(open_, node, task)]
    if not ended:
        return 0
    _keep(run, [open_ for open_ in run.cold.open_turns if not _matches(open_, node, task)])
    return max(0, run.at_ms - ended[-1].started_ms)


def close_turns(run: RunState) -> None:
    """End all open turns."""
    if run.turns_open:
        _keep(run, [])


def _keep(run: RunState, open_: list[OpenTurn]) -> None:
    run.cold.open_turns, run.turns_open = open_, len(open_)


def node_of(open_: OpenTurn) -> str:
    """Return the node of an open turn; empty if the event named none, or if the name is too long to be stored whole."""
    return open_.name if len(open_.name) < NAME_MAX else ""


def _matches(open_: OpenTurn, node: int, task: int) -> bool:
    return open_.node in (node, 0) and (not task or open_.task in (task, 0))
