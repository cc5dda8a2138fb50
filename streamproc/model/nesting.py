"""The limits on how deep a raw event may be nested, and on how many values an event about tasks may have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

SCALARS: Final = frozenset({str, int, float, bool, type(None)})  # a faster test than `isinstance`, for most values
DEPTH_MAX: Final = 100  # levels of nesting; JSON libraries give up at 250 to 1 000, each at its own level

VALUES_MAX: Final = 8_000  # of an event about tasks: a batch of thousands, or long reports. Each costs up to 10 µs


def depth_exceeds(value: Any, levels: int) -> bool:
    """Return whether a value is nested deeper than `levels`.

    Walks level by level, without recursion, and visits each container of a level once, so cycles end too.
    """
    level: Collection[Any] = [value] if isinstance(value, (dict, list, tuple)) else ()
    for _ in range(levels):
        if not level:
            return False
        inner = {
            id(child): child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if type(child) not in SCALARS and isinstance(child, (dict, list, tuple))
        }
        level = inner.values()
    return bool(level)


def count_exceeds(value: Any, limit: int) -> bool:
    """Return whether a value contains more than `limit` values, in all of its lists and objects together."""
    stack = [value]
    while stack:
        item = stack.pop()
        children = item.values() if isinstance(item, dict) else item
        limit -= len(children)
        if limit < 0:
            return True
        stack += [child for child in children if isinstance(child, (dict, list, tuple))]
    return False
