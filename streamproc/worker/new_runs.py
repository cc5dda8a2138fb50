"""The limit on new runs that a publisher begins in one partition and one minute (`STREAMPROC_NEW_RUNS_MAX`).

Minutes are those of the log, and each partition counts for itself, from nothing whenever its runs are read again. So a
record that is processed again after a crash is refused only if it was refused before: at each record, the count is at
most what it was the first time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.errors import Problem
from streamproc.model.wire import PUBLISHER_HEADER
from streamproc.worker.limits import PUBLISHER_BYTES_MAX, PUBLISHERS_MAX

if TYPE_CHECKING:
    from streamproc.worker.records import Fetched

MINUTE_MS: Final = 60_000
OTHERS: Final = b""  # those without a name, and those past PUBLISHERS_MAX
REMEDY: Final = "use one run id for all events of a run, or raise STREAMPROC_NEW_RUNS_MAX of the workers"


class NewRuns:
    """The new runs of one partition in the latest minute of its log, by publisher."""

    def __init__(self) -> None:
        self._minute = -1
        self._counts: dict[bytes, int] = {}

    def admit(self, record: Fetched, at_ms: int | None, most: int) -> bool:
        """Count the new run that a record begins; return False if its publisher has begun `most` in this minute."""
        minute = self._minute if at_ms is None else at_ms // MINUTE_MS
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        counts, publisher = self._counts, publisher_of(record)
        if publisher not in counts and len(counts) >= PUBLISHERS_MAX:
            publisher = OTHERS
        count = counts.get(publisher, 0)
        if count >= most:
            return False
        counts[publisher] = count + 1
        return True


def publisher_of(record: Fetched) -> bytes:
    """Return the publisher that a record names; nothing verifies it."""
    named = next((value for name, value in record.headers if name == PUBLISHER_HEADER), None)
    return (named or OTHERS)[:PUBLISHER_BYTES_MAX]


def too_many_new_runs(record: Fetched, most: int) -> Problem:
    """Return why the event of a new run is refused."""
    named = publisher_of(record).decode("utf-8", "replace")
    return Problem("publisher", f"more than {most} new runs a minute of {named!r} in this partition", REMEDY)
