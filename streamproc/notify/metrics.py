"""The metrics of a notifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.notify.notifier import Notifier


def notifier_readings(notifier: Notifier) -> Iterator[Reading]:
    """Yield what a notifier has counted."""
    counts = notifier.counts
    for outcome in definitions.NOTIFICATION_OUTCOMES:
        yield Reading(definitions.NOTIFICATIONS, getattr(counts, outcome), (outcome,))
    yield Reading(definitions.NOTIFICATIONS_WAITING, counts.waiting)
