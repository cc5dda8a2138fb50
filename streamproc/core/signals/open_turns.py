"""Open turns: `turn.started` opens one, and a turn of the same node ends it.

Publishers are not always precise. A clock that runs too long would halt a healthy run, while one that stops too early
only misses a stall. So a node has at most one open turn a task, the latest; and a turn without a task ends all open
turns of its node. Memory: `OPEN_MAX` open turns. Past it, no other is followed: the oldest one is the next to take too
long.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.now import Now
from streamproc.model.wire import TurnStarted

OPEN_MAX: Final = 12  # turns that started and have not ended: one a node at a time, and few nodes work at once
NAME_MAX: Final = 32  # characters of a node's name; most are shorter, and a state may hold twelve


class OpenTurn(msgspec.Struct, array_like=True):
    """A turn that started and has not ended."""

    node: int  # tag; 0: not reported
    task: int  # tag; 0: not reported
    name: str  # the node's name, for messages
    started_ms: int  # log time of its start


def start_turn(known: list[OpenTurn], event: TurnStarted, now: Now) -> list[OpenTurn]:
    """Return the open turns with the one that starts. If the event names no node, the next turn of any node ends it."""
    node = now.tag(event.node) if event.node else 0
    task = now.tag(event.task_id) if event.task_id else 0
    others = [turn for turn in known if (turn.node, turn.task) != (node, task)]
    if len(others) >= OPEN_MAX:
        now.evicted += 1
        return others
    return [*others, OpenTurn(node, task, event.node[:NAME_MAX], now.at_ms)]


def end_turn(known: list[OpenTurn], now: Now) -> tuple[list[OpenTurn], int]:
    """Return the open turns without those that this turn completes, and the ms of log time it took (0: not known)."""
    task = now.tag(now.turn.task_id) if now.turn.task_id else 0
    ended = [one for one in known if _matches(one, now.node_tag, task)]
    if not ended:
        return known, 0
    return [one for one in known if one not in ended], max(0, now.at_ms - ended[-1].started_ms)


def node_of(open_: OpenTurn) -> str:
    """Return the node of an open turn; empty if the event named none, or if the name is too long to be stored whole."""
    return open_.name if len(open_.name) < NAME_MAX else ""


def _matches(open_: OpenTurn, node: int, task: int) -> bool:
    return open_.node in (node, 0) and (not task or open_.task in (task, 0))
