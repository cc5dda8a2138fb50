"""Times on the page."""

from __future__ import annotations

import time

from streamproc.model.time_range import time_or_age_ms
from streamproc.report import markup
from streamproc.report.markup import NOTHING, Html, tag


def moment(at_ms: int, *, ago: bool = False) -> Html:
    """Return a time in the reader's zone, or as an age; a dash for 0."""
    return markup.moment(at_ms, "ago" if ago else "time") or tag("span", "—", class_="muted")


def time_words(since: str, until: str) -> Html:
    """Return a stretch of time of an address in words; nothing if neither end is a time."""
    now_ms = time.time_ns() // 1_000_000
    since_ms, until_ms = time_or_age_ms(since, now_ms), time_or_age_ms(until, now_ms)
    if since_ms and until_ms:
        return Html().join(["from ", moment(since_ms), " to ", moment(until_ms)])
    if since_ms:
        return Html().join(["since ", moment(since_ms)])
    return Html().join(["before ", moment(until_ms)]) if until_ms else NOTHING
