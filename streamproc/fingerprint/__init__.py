"""Turn content into numbers: masking, hashes, similarity. The content itself stays in your process."""

from __future__ import annotations

import msgspec

from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint.turn import fingerprint
from streamproc.model import wire
from streamproc.model.raw_events import parse_line

__all__ = ["fingerprint", "read_event"]


def read_event(value: bytes) -> wire.Event:
    """Read a record of the turns topic: a fingerprinted event, or a raw one from another publisher.

    Raises `InvalidEvent` for anything else.
    """
    try:
        return wire.decode(value)
    except msgspec.DecodeError:
        raw = parse_line(value)
    version = (raw.model_extra or {}).get("w")
    if isinstance(version, int) and version > wire.WIRE_VERSION:
        what = f"version {version} of the wire format is newer than this program, which reads {wire.WIRE_VERSION}"
        raise InvalidEvent([Problem("w", what, "upgrade workers before publishers")])
    return fingerprint(raw)
