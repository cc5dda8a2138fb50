"""Turn content into numbers: masking, hashes, similarity. The content itself stays in your process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.plain import plain_turn
from streamproc.fingerprint.turn import fingerprint
from streamproc.model import wire
from streamproc.model.graph_limits import bounded_graph
from streamproc.model.raw_events import RawRunStarted, parse_line

__all__ = ["HashKey", "fingerprint", "is_fingerprinted", "plain_turn", "read_event"]

FIELD_SHOWN = 200  # characters of the path of a mistake
WHAT_SHOWN = 300  # and of its description


def is_fingerprinted(data: Any) -> bool:
    """Whether JSON is meant as a record of the turns topic whose content is fingerprinted: raw events have no ``w``."""
    return isinstance(data, Mapping) and type(data.get("w")) is int


def read_event(value: bytes) -> wire.Event:
    """Read a record of the turns topic: a fingerprinted event, or a raw one from another publisher.

    Raises `InvalidEvent` for anything else.
    """
    try:
        return wire.decode(value)
    except msgspec.DecodeError as error:
        version, problem = wire.version_of(value), str(error)
    if version is None:
        raw = parse_line(value)
        if isinstance(raw, RawRunStarted) and raw.graph:  # its names are redacted, if workers follow it at all
            raw = raw.model_copy(update={"graph": bounded_graph(raw.graph)})
        event = fingerprint(raw)
        event.run_id, event.parent_run_id = raw.run_id, raw.parent_run_id  # the record's key has them as they are
        return event
    if version > wire.WIRE_VERSION:
        what = f"version {version} of the wire format is newer than this program, which reads {wire.WIRE_VERSION}"
        raise InvalidEvent([Problem("w", what, "upgrade workers before publishers")])
    what, _, place = problem.partition(" - at ")
    field = place.strip("`$.")[:FIELD_SHOWN] or "event"
    raise InvalidEvent([Problem(field, what[:WHAT_SHOWN], "send what `streamproc schema export` describes")])
