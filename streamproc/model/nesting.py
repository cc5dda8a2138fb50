"""The limit on how deep a raw event may be nested."""

from __future__ import annotations

from typing import Any, Final

DEPTH_MAX: Final = 100  # levels of nesting; JSON libraries give up at 250 to 1 000, each at its own level


def depth_exceeds(value: Any, levels: int) -> bool:
    """Return whether a value is nested deeper than `levels`.

    Walks level by level, without recursion, and visits each container of a level once, so cycles end too.
    """
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(levels):
        if not level:
            return False
        inner = {
            id(child): child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list, tuple))
        }
        level = list(inner.values())
    return bool(level)
