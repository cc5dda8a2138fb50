"""The codec of the table `runs`: a run as bytes, and the fields that can be read without decoding all of it."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from streamproc.core.run_state import STATE_VERSION, RunState, dump, load
from streamproc.worker.eviction import FINISHED, HALTED, NEW, OPEN, STUB
from streamproc.worker.limits import NEW_TURNS_MAX


class Head(msgspec.Struct, array_like=True):
    """The first fields of a stored state, which are read without decoding the rest."""

    version: int
    partition: int
    offset: int
    turns: int
    steps: int
    started_ms: int
    at_ms: int
    finished: bool
    halted: int


FRAME: Final = Struct("<Iq")  # before a stored state: its size, and the next deadline of the run (0: none)
_heads: Final = msgspec.msgpack.Decoder(Head)


def _head(raw: bytes | None) -> Head | None:
    """Return the first fields of a stored state; None if there is none, or it has another version."""
    try:
        head = _heads.decode(state_bytes(raw)) if raw and len(raw) > FRAME.size else None
    except msgspec.DecodeError:
        return None
    return head if head is not None and head.version == STATE_VERSION else None


_NO_INT: Final = 1 << 32
# Bytes of a MessagePack integer, by its first one: small ones of both signs are one byte.
_INT_BYTES: Final = tuple(
    1 if first < 0x80 or first >= 0xE0 else {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}.get(first, _NO_INT)
    for first in range(256)
)
_LONG_ARRAY, _TRUE, _FALSE, _SIGNED, _NEGATIVE, _NOT_HALTED = 0xDC, 0xC3, 0xC2, 0xD0, 0xE0, 0xFF


def peek_run(raw: bytes) -> tuple[int, int] | None:
    """Return the offset that a stored state has applied, and its rank (`eviction.rank_of`); None as in `_head`.

    Reads the bytes where `dump` puts these fields, and not the whole state: a recovery reads very many states.
    """
    try:
        if raw[FRAME.size] == _LONG_ARRAY and raw[FRAME.size + 3] == STATE_VERSION:
            offset_at = FRAME.size + 4 + _INT_BYTES[raw[FRAME.size + 4]]  # after the partition
            at = offset_at + _INT_BYTES[raw[offset_at]]
            offset = int.from_bytes(raw[offset_at + 1 : at], "big") if at > offset_at + 1 else raw[offset_at]
            new = raw[at] <= NEW_TURNS_MAX
            at += _INT_BYTES[raw[at]]  # the turns
            at += _INT_BYTES[raw[at]]  # the steps
            at += _INT_BYTES[raw[at]]  # its start
            at += _INT_BYTES[raw[at]]  # the time of its last event
            finished, halted = raw[at], raw[at + 1]
            if raw[offset_at] < _NEGATIVE and finished in (_TRUE, _FALSE):
                if halted == _NOT_HALTED:
                    return offset, FINISHED if finished == _TRUE else NEW if new else OPEN
                if halted < _SIGNED:
                    return offset, _halted_rank(raw)
    except IndexError:
        pass
    head = _head(raw)
    if head is None:
        return None
    if head.halted >= 0:
        return head.offset, _halted_rank(raw)
    return head.offset, FINISHED if head.finished else NEW if 0 <= head.turns <= NEW_TURNS_MAX else OPEN


def _halted_rank(raw: bytes) -> int:
    """Return the rank of a halted run: the decision that halted it stands behind its state, except behind a stub."""
    return STUB if len(raw) == FRAME.size + FRAME.unpack_from(raw)[0] else HALTED


def state_bytes(raw: bytes) -> bytes:
    """Return the encoded state within the stored bytes of a run."""
    return raw[FRAME.size : FRAME.size + FRAME.unpack_from(raw)[0]]


def encode_run(state: RunState, halt: bytes | None, due_ms: int = 0) -> bytes:
    """Encode a run: the size of its state, its next deadline, the state, and the decision (JSON) that halted it, or the
    operator's event (JSON) that resumed it."""
    body = dump(state)
    return FRAME.pack(len(body), due_ms) + body + (halt or b"")


def decode_run(raw: bytes) -> tuple[RunState, bytes | None]:
    """Decode the result of `encode_run`. Raises `msgspec.DecodeError` for anything else."""
    if len(raw) < FRAME.size:
        raise msgspec.DecodeError(f"{len(raw)} bytes are not a stored run")
    end = FRAME.size + FRAME.unpack_from(raw)[0]
    return load(raw[FRAME.size : end]), raw[end:] or None
