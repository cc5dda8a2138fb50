"""Times on the page."""

from __future__ import annotations

from streamproc.model.formats import clock
from streamproc.report.markup import Html, tag


def moment(at_ms: int, *, ago: bool = False) -> Html:
    """Return a time in UTC, which the script shows in the reader's zone, or as an age. Nothing for 0."""
    text = clock(at_ms)
    if not text:
        return tag("span", "—", class_="muted")
    shown = f"{text[11:]} UTC"
    kind = "ago" if ago else "time"
    return tag("time", shown, datetime=f"{text.replace(' ', 'T')}Z", title=f"{text} UTC", data_show=kind)
