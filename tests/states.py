"""What a state holds, as plain values, whether or not the core is compiled."""

from __future__ import annotations

import struct
from typing import Any

from streamproc.core.records import Name, Part, Table, Tags, Trail, Values
from streamproc.core.run_state import HEAD, HEAD_2, Peek, dump, load, peek
from streamproc.worker.codec import FRAME

_PARTS = frozenset({"parts", "cold_raw", "cold_read"})


def shown(value: Any) -> Any:
    """Return the numbers of a record and of everything in it, by name."""
    if isinstance(value, Table):
        return [shown(row) for row in value.rows]
    if isinstance(value, Trail):
        return list(zip(value.last_numbers(value.size), value.last_turns(value.size), strict=True))
    if isinstance(value, Tags):
        return list(value)
    if isinstance(value, Values):
        return value.listed()
    if isinstance(value, Name):
        return value.get()
    if not isinstance(value, Part):
        return value
    fields = {name: getattr(value, name) for name in dir(value) if not name.startswith("_") and name not in _PARTS}
    return {name: shown(one) for name, one in fields.items() if not callable(one)}


def framed(state: bytes) -> bytes:
    """Return a stored state as the table of runs holds it."""
    return FRAME.pack(len(state), 0) + state


def first_fields(state: bytes) -> Peek | None:
    """Return what can be read of a stored state without its parts; None of what is none."""
    return peek(state)


def of_another_layout(stored: bytes) -> bytes:
    """Return what holds a state with the head of another layout; applied twice, it is as it was."""
    other = HEAD[:-1] + bytes([HEAD[-1] ^ 0xFF])
    found, made = (HEAD, other) if HEAD in stored else (other, HEAD)
    return stored.replace(found, made, 1)


def of_version_2(state: bytes) -> bytes:
    """Return a stored state as version 2 stored it, if it has no calls and no cycle with turns outside of it."""
    run = load(state)
    end = len(state) - 2 - len(run.cold_raw)  # where the later parts end: each is empty
    assert state.startswith(HEAD)
    later = b"\xff" * 4 + b"\0" * 2 + struct.pack("<IIiiiIB", 0, 0, 0, 0, 0, 0, 0)  # not crowded, no check, no callers
    assert state[:end].endswith(later)
    older = HEAD_2 + state[len(HEAD) : end - len(later)] + state[end:]
    assert dump(load(older)) == state
    return older
