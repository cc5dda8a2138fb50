"""What a guard reports of a run: that it watches it, has stopped it, or has left. A ``halt.acknowledged`` with labels.

No detector reads it and no run's state knows of it, as with feedback: it is there for people who stop runs.
"""

from __future__ import annotations

from typing import Final, Literal

from streamproc.model.wire import WIRE_VERSION, Event, HaltAcknowledged, encode

GuardState = Literal["watching", "stopped", "left"]

GUARD: Final = "guard"  # the label that makes an acknowledgement a report
HOST: Final = "host"  # the label with the guard's machine and process
STATES: Final = frozenset({"watching", "stopped", "left"})
TEXT_MAX: Final = 128  # characters of a label that are read


def encode_guard_report(run_id: str, event_id: str, state: GuardState, host: str) -> bytes:
    """Return a report as an event of the turns topic."""
    labels = {GUARD: state, HOST: host[:TEXT_MAX]}
    return encode(HaltAcknowledged(w=WIRE_VERSION, run_id=run_id, event_id=event_id, labels=labels))


def is_guard_report(event: Event) -> bool:
    """Return whether an event is the report of a guard, and not the acknowledgement of a person."""
    return type(event) is HaltAcknowledged and event.labels is not None and GUARD in event.labels
