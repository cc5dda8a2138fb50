"""Chains of blocked tasks, each blocked behind the one before."""

from __future__ import annotations

from collections.abc import Mapping

from streamproc.core.board.config import BoardConfig
from streamproc.core.board.state import Board

Links = Mapping[int, list[int]]


def chain_through(board: Board, law: BoardConfig, key: int) -> tuple[list[int], int]:
    """The longest chain of blocked tasks that goes through this one, from its root on; and the length of its longer
    side without this one."""
    needs, needed = _links(board, law)
    if key not in needs:
        return [], 0
    behind, before = _longest(key, needs, {}), _longest(key, needed, {})
    return list(dict.fromkeys([*reversed(behind), *before[1:]])), max(len(behind), len(before)) - 1


def chains(board: Board, law: BoardConfig) -> list[list[int]]:
    """The longest chain of blocked tasks behind each root, from the root on."""
    needs, needed = _links(board, law)
    known: dict[int, list[int]] = {}
    return [_longest(key, needed, known) for key in needs if not needs[key]]


def _links(board: Board, law: BoardConfig) -> tuple[Links, Links]:
    """Among the blocked tasks: which each depends on, and which depend on each."""
    blocked = [key for key, task in board.tasks.items() if task.state >= 0 and law.blocked >> task.state & 1]
    needs = {key: [other for other in board.tasks[key].depends_on if other in blocked] for key in blocked}
    needed: dict[int, list[int]] = {key: [] for key in blocked}
    for key, others in needs.items():
        for other in others:
            needed[other].append(key)
    return needs, needed


def _longest(key: int, links: Links, known: dict[int, list[int]]) -> list[int]:
    """The longest way from a task along its links, itself first; tasks that wait for each other end it."""
    if key not in known:
        known[key] = []  # while it is being followed, so that a circle ends
        known[key] = [key, *max((_longest(other, links, known) for other in links[key]), key=len, default=[])]
    return known[key]
