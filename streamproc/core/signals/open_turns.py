"""Turns that were started and have not ended yet: what `turn.started` opens, and a turn of the same node closes.

Where a publisher is sloppy, a clock that runs too long would halt an honest run, and one that stops too early only
misses something. So a node has one open turn for each task, started last; and a turn that names no task ends all of
its node's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamproc.core.run_state import OPEN_MAX, OpenTurn, RunState
from streamproc.model.wire import Turn, TurnStarted

NAME_MAX: Final = 32  # characters of a node's name: most are shorter, and there may be six


def start_turn(run: RunState, event: TurnStarted, tag: Callable[[str], int]) -> None:
    """Note that a turn is open. An event without a node opens a turn of whoever speaks next."""
    node = tag(event.node) if event.node else 0
    task = tag(event.task_id) if event.task_id else 0
    run.begun = [turn for turn in run.begun if (turn.node, turn.task) != (node, task)]
    run.begun.append(OpenTurn(node, task, event.node[:NAME_MAX], run.at_ms))
    if len(run.begun) > OPEN_MAX:
        del run.begun[0]
        run.evicted += 1


def end_turn(run: RunState, turn: Turn, node: int, tag: Callable[[str], int]) -> int:
    """Note that a turn has ended; how long it was open in log time, in ms (0: it was not known to be open)."""
    task = tag(turn.task_id) if turn.task_id else 0
    ended = [open_ for open_ in run.begun if _same(open_, node, task)]
    if not ended:
        return 0
    run.begun = [open_ for open_ in run.begun if not _same(open_, node, task)]
    return max(0, run.at_ms - ended[-1].started_ms)


def _same(open_: OpenTurn, node: int, task: int) -> bool:
    return open_.node in (node, 0) and (not task or open_.task in (task, 0))


def node_of(open_: OpenTurn) -> str:
    """The node of an open turn; empty where nobody said, or the name is too long to be kept whole."""
    return open_.name if len(open_.name) < NAME_MAX else ""
