"""The metrics of the bridge: its spans, and its publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.metrics import definitions
from streamproc.metrics.clients import publisher_readings
from streamproc.metrics.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.client import TurnPublisher
    from streamproc.otel.bridge import SpanBridge


def bridge_readings(bridge: SpanBridge, publisher: TurnPublisher) -> Iterator[Reading]:
    """Yield what a bridge and its publisher have counted."""
    held = bridge.assembly
    outcomes = {
        "turn": held.turns, "usage": held.usage, "ignored": bridge.counts["ignored"] + held.wrappers + held.repeated,
        "refused": bridge.counts["refused"], "late": held.late,
    }  # fmt: skip
    for outcome in definitions.SPAN_OUTCOMES:
        yield Reading(definitions.OTEL_SPANS, outcomes[outcome], (outcome,))
    yield from publisher_readings([publisher])
