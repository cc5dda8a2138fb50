"""What a guard reports of a run: that it watches it, has stopped it, or has left. A ``halt.acknowledged`` with labels.

No detector reads it and no run's state knows of it, as with feedback: it is there for people who stop runs.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from streamproc.model.expansion import INNER_BYTES_MAX, json_expands_beyond
from streamproc.model.wire import WIRE_VERSION, Event, HaltAcknowledged, encode

GuardState = Literal["watching", "stopped", "left"]

GUARD: Final = "guard"  # the label that makes an acknowledgement a report
HOST: Final = "host"  # the label with the guard's machine and process
EXCERPTS: Final = "excerpts"  # the label with redacted texts of the run's last turns, as JSON: fields by event id
STATES: Final = frozenset({"watching", "stopped", "left"})
TEXT_MAX: Final = 128  # characters of a label that are read


def encode_guard_report(run_id: str, event_id: str, state: GuardState, host: str, excerpts: str = "") -> bytes:
    """Return a report as an event of the turns topic."""
    labels = {GUARD: state, HOST: host[:TEXT_MAX]} | ({EXCERPTS: excerpts} if excerpts else {})
    return encode(HaltAcknowledged(w=WIRE_VERSION, run_id=run_id, event_id=event_id, labels=labels))


def is_guard_report(event: Event) -> bool:
    """Return whether an event is the report of a guard, and not the acknowledgement of a person."""
    return type(event) is HaltAcknowledged and event.labels is not None and GUARD in event.labels


def read_excerpts(event: Event) -> dict[str, dict[str, Any]]:
    """Return the texts in a guard's report: the fields of turns by their events' ids. Empty if it has none."""
    text = (event.labels or {}).get(EXCERPTS, "") if is_guard_report(event) else ""
    try:
        return _read(text) if text and not json_expands_beyond(text, INNER_BYTES_MAX) else {}
    except msgspec.DecodeError:  # of a publisher of its own
        return {}


_read = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode
