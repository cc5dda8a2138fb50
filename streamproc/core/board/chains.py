"""Chains of blocked tasks: each task depends on the one before it."""

from __future__ import annotations

from collections.abc import Mapping

from streamproc.core.board.config import BoardConfig
from streamproc.core.board.state import Board

Links = Mapping[int, list[int]]


def chain_through(board: Board, config: BoardConfig, key: int) -> tuple[list[int], int]:
    """Return the longest chain of blocked tasks through this one, root first, and the length of its longer side
    without this task."""
    needs, needed = _links(board, config)
    if key not in needs:
        return [], 0
    behind, before = _longest(key, needs, {}), _longest(key, needed, {})
    return list(dict.fromkeys([*reversed(behind), *before[1:]])), max(len(behind), len(before)) - 1


def chains(board: Board, config: BoardConfig) -> list[list[int]]:
    """Return the longest chain of blocked tasks behind each root, root first."""
    needs, needed = _links(board, config)
    known: dict[int, list[int]] = {}
    return [_longest(key, needed, known) for key in needs if not needs[key]]


def _links(board: Board, config: BoardConfig) -> tuple[Links, Links]:
    """Return for each blocked task the blocked tasks that it depends on, and those that depend on it."""
    blocked = [key for key, task in board.tasks.items() if task.state >= 0 and config.blocked >> task.state & 1]
    needs = {key: [other for other in board.tasks[key].depends_on if other in blocked] for key in blocked}
    needed: dict[int, list[int]] = {key: [] for key in blocked}
    for key, others in needs.items():
        for other in others:
            needed[other].append(key)
    return needs, needed


def _longest(key: int, links: Links, known: dict[int, list[int]]) -> list[int]:
    """Return the longest path from a task along its links, itself first. Circular dependencies end a path."""
    if key not in known:
        known[key] = []  # set before following the links: ends circular dependencies
        known[key] = [key, *max((_longest(other, links, known) for other in links[key]), key=len, default=[])]
    return known[key]
