"""How much memory a text may take once it is parsed, told from its bytes alone.

A body of a few KB unpacks to millions of empty objects, and each of them takes a hundred times its bytes. So what a
parser would build is counted before it runs. The figures are upper bounds of CPython, and include the list or the
object that refers to the value.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

TEXT_BYTES: Final = 4  # of a character: one beyond the basic plane makes all of its text as wide
OBJECT_BYTES: Final = 240  # of an object with up to five fields
LIST_BYTES: Final = 88
VALUE_BYTES: Final = 100  # of a number, a short text, or a key with its place in a large object

# Of one JSON text inside another: a conversation of 4 MB has a hundredth of these.
INNER_BYTES_MAX: Final = 64 << 20


def json_expands_beyond(text: bytes | str, bytes_max: int) -> bool:
    """Return whether parsing JSON may take more than `bytes_max`, also if texts in it are parsed as JSON themselves:
    brackets and commas count wherever they stand. 16 MiB take 20 ms, and 150 ms if they are nothing else."""
    if len(text) * (OBJECT_BYTES + VALUE_BYTES) <= bytes_max:
        return False  # nearly all
    return json_bytes(text) > bytes_max


def json_bytes(text: bytes | str) -> int:
    """Return what parsing JSON takes at most, in bytes of memory."""
    signs = ("{", "[", ",") if isinstance(text, str) else (b"{", b"[", b",")
    objects, lists, commas = (text.count(sign) for sign in signs)  # type: ignore[arg-type]
    return TEXT_BYTES * len(text) + OBJECT_BYTES * objects + LIST_BYTES * lists + VALUE_BYTES * commas


def parsed(value: Any) -> Any:
    """Return the JSON value of a text, or the value as it is; so a text that would take too much memory stays one."""
    if not isinstance(value, str) or json_expands_beyond(value, INNER_BYTES_MAX):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
