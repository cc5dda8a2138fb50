"""The metrics of programs that hear the workers: a worker that is gone cannot say so itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.fleet.watching import Watching


def watch_readings(found: Watching) -> Iterator[Reading]:
    """Yield whether workers decide, on how many partitions none does, and how many turns wait, if that is known."""
    for state in definitions.WATCH_STATES:
        yield Reading(definitions.WATCH_STATE, state == found.state.name, (state,))
    yield Reading(definitions.UNWATCHED_PARTITIONS, len(found.unwatched))
    counts = Counter(row.state for row in found.rows)
    for one in definitions.WORKER_STATES:
        yield Reading(definitions.WORKERS, counts[one], (one,))
    if found.waiting is not None:
        yield Reading(definitions.WAITING_TURNS, found.waiting.turns)
