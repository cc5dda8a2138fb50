"""The metrics of a notifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.fleet.watch_metrics import watch_readings
from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.fleet.watching import Watching
    from streamproc.notify.notifier import Notifier


def notifier_readings(notifier: Notifier, watching: Watching) -> Iterator[Reading]:
    """Yield what a notifier has counted, and whether workers decide."""
    counts = notifier.counts
    for outcome in definitions.NOTIFICATION_OUTCOMES:
        yield Reading(definitions.NOTIFICATIONS, getattr(counts, outcome), (outcome,))
    yield Reading(definitions.NOTIFICATIONS_WAITING, counts.waiting)
    yield from watch_readings(watching)
