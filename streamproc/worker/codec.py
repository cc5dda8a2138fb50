"""The codec of the table `runs`: a run as bytes, and the fields that can be read without decoding all of it."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

import msgspec

from streamproc.core.run_state import (
    HEAD,
    HEADS,
    LAYOUT,
    PEEK,
    STATE_VERSION,
    Peek,
    RunState,
    check,
    dump,
    load,
    peek,
    peek_scope,
)
from streamproc.core.scope import Scope
from streamproc.worker.eviction import FINISHED, HALTED, NEW, OPEN, STUB
from streamproc.worker.limits import NEW_TURNS_MAX

FRAME: Final = Struct("<Iq")  # before a stored state: its size, and the next deadline of the run (0: none)
_HEADED: Final = Struct(FRAME.format + PEEK.format[1:])  # both read at once: recovery does it for every run


def peek_run(raw: bytes) -> tuple[int, int] | None:
    """Return the offset that a stored state has applied, and its rank (`eviction.rank_of`); None if there is none, or
    it has a version that is not read."""
    seen = peek_with_deadline(raw)
    return seen[:2] if seen is not None else None


def peek_with_deadline(raw: bytes) -> tuple[int, int, int] | None:
    """Return the same as `peek_run`, with the next deadline of the run (0: none)."""
    try:
        size, due_ms, version, layout, offset, turns, halted, finished = _HEADED.unpack_from(raw)
    except error:  # too short for a state
        return None
    if (version != STATE_VERSION or layout != LAYOUT) and not raw.startswith(HEADS, FRAME.size):
        return None
    if halted >= 0:  # the decision that halted it stands behind its state, except behind a stub
        return offset, STUB if len(raw) == FRAME.size + size else HALTED, due_ms
    return offset, FINISHED if finished else NEW if 0 <= turns <= NEW_TURNS_MAX else OPEN, due_ms


def peek_whole(raw: bytes) -> tuple[Peek, Scope] | None:
    """Return the first fields and the scope of a stored state, without decoding the rest; None as in `peek_run`."""
    state = state_bytes(raw)
    try:
        head = peek(state)
        return (head, peek_scope(state)) if head is not None else None
    except msgspec.DecodeError:
        return None


def is_of_another_version(raw: bytes) -> bool:
    """Return whether these bytes are a whole stored run whose state this version cannot read."""
    state = state_bytes(raw) if len(raw) >= FRAME.size else b""
    return len(state) >= len(HEAD) and len(state) == FRAME.unpack_from(raw)[0] and not state.startswith(HEADS)


def state_bytes(raw: bytes) -> bytes:
    """Return the encoded state within the stored bytes of a run."""
    return raw[FRAME.size : FRAME.size + FRAME.unpack_from(raw)[0]]


def encode_run(state: bytes | RunState, halt: bytes | None, due_ms: int = 0) -> bytes:
    """Encode a run: the size of its state, its next deadline, the state, and the decision (JSON) that halted it, or the
    operator's event (JSON) that resumed it."""
    body = state if isinstance(state, bytes) else dump(state)
    return FRAME.pack(len(body), due_ms) + body + (halt or b"")


def halt_of(raw: bytes) -> bytes | None:
    """Return what stands behind the state within the stored bytes of a run; None: nothing."""
    return raw[FRAME.size + FRAME.unpack_from(raw)[0] :] or None


def decode_run(raw: bytes) -> tuple[RunState, bytes | None]:
    """Decode the result of `encode_run`. Raises `msgspec.DecodeError` for anything else."""
    if len(raw) < FRAME.size:
        raise msgspec.DecodeError(f"{len(raw)} bytes are not a stored run")
    end = FRAME.size + FRAME.unpack_from(raw)[0]
    run = load(raw[FRAME.size : end])
    check(run)  # these bytes may be damaged, and nothing else reads at all of them
    return run, raw[end:] or None
