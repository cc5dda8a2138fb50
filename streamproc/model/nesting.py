"""The limits on how deep a raw event may be nested, on how many lists and objects its JSON may have, and on how many
values an event about tasks may have.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

SCALARS: Final = frozenset({str, int, float, bool, type(None)})  # a faster test than `isinstance`, for most values
DEPTH_MAX: Final = 100  # levels of nesting; JSON libraries give up at 250 to 1 000, each at its own level
# Lists and objects in one line of JSON: twice the largest graph that workers follow. Of 1 MiB, 350 000 empty lists take
# 150 ms to parse.
CONTAINERS_MAX: Final = 20_000

VALUES_MAX: Final = 8_000  # of an event about tasks: a batch of thousands, or long reports. Each costs up to 10 µs

# A text, ended or not: a pattern that may fail would be tried at every quote.
_TEXTS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)


def containers_exceed(line: bytes | str, limit: int) -> bool:
    """Return whether JSON has more than `limit` lists and objects, without parsing it; brackets in texts do not count.

    1 MiB takes 1 ms, and at most 40 ms if there are more brackets than `limit`.
    """
    if isinstance(line, str):
        line = line.encode("utf-8", "replace")
    if line.count(b"[") + line.count(b"{") <= limit:
        return False
    rest = _TEXTS.sub(b"", line)
    return rest.count(b"[") + rest.count(b"{") > limit


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


def start_of(value: Any, characters: int) -> Any:
    """Return the start of a JSON value: its first texts, keys and items, together about so many characters."""
    return _started(value, [characters], 0)


def _started(value: Any, left: list[int], depth: int) -> Any:
    """Return as much of a value as `left` allows, which counts down."""
    if isinstance(value, str):
        value = value[: max(0, left[0])]
        left[0] -= len(value)
    elif isinstance(value, dict) and depth < DEPTH_MAX:
        found = {}
        for name, part in value.items():
            if left[0] <= 0:
                break
            left[0] -= len(name) + 1
            found[name] = _started(part, left, depth + 1)
        return found
    elif isinstance(value, (list, tuple)) and depth < DEPTH_MAX:
        items = []
        for part in value:
            if left[0] <= 0:
                break
            left[0] -= 1
            items.append(_started(part, left, depth + 1))
        return items
    return value
