"""What detectors keep of a run beside its signals: for each one a small mapping, as MessagePack (`Cold.plugins`).

`View.memory` reads it, and the engine stores it again after the `check` of the detector. Both follow from the state
and the event, so a replay of the same log decides alike.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamproc.core.run_state import RunState

MEMORY_BYTES: Final = 512  # of one detector; counters and a dozen hashes
MEMORIES_BYTES: Final = 1_536  # of all detectors, with their codes; our own need up to 800

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


def load_memory(run: RunState, code: str) -> dict[str, Any]:
    """Return what a detector keeps of a run, as a new mapping; an empty one before it has kept anything, and if what is
    stored is damaged."""
    raw = run.cold.plugins.get(code) if run.cold_raw or run.cold_read is not None else None
    try:
        return {} if raw is None else _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def store_memory(run: RunState, code: str, memory: dict[str, Any]) -> None:
    """Keep a mapping for a detector. Its keys are texts; its values are numbers, texts, bytes, lists and mappings.

    Raises `ValueError` above `MEMORY_BYTES` or `MEMORIES_BYTES`, and `TypeError` for values of other types; what was
    kept before stays.
    """
    raw = _encode(memory)
    _decode(raw)  # a key that is no text would fail at the next event only
    kept: dict[str, bytes] = run.cold.plugins
    before = kept.get(code)
    if not memory or raw == before:
        if not memory:
            kept.pop(code, None)
        return
    if len(raw) > MEMORY_BYTES:
        raise ValueError(f"{code} keeps {len(raw)} bytes of a run; the limit is {MEMORY_BYTES}")
    others = sum(len(other) + len(text) for other, text in kept.items() if other != code)
    if others + len(code) + len(raw) > MEMORIES_BYTES:
        raise ValueError(f"{code} keeps {len(raw)} bytes; the limit of all detectors together is {MEMORIES_BYTES}")
    kept[code] = raw
