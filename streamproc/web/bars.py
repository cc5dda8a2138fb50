"""The red bars below the head of every page: the broker does not answer, or workers do not decide."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streamproc.report.markup import NOTHING, Html, tag
from streamproc.web.moments import moment

if TYPE_CHECKING:
    from streamproc.fleet.watching import Watching
    from streamproc.read_model import ModelReader

MARK: Final = "\0"  # around a time in a sentence


def bars(reader: ModelReader) -> Html:
    """Return what is wrong with what all pages show; an element without content if nothing is."""
    silent_ms = reader.silent_since_ms
    found = reader.watching()
    if silent_ms is not None:
        since = Html().join(["since ", moment(silent_ms), ". What you see is as of then"]) if silent_ms else "yet"
        body = tag("p", "Kafka has not answered ", since, ".", class_="lost gone")
    elif found.level == "fail":
        link = Html().join([". ", tag("a", "Workers", href="/health#workers")])
        body = tag("p", said(found), link, class_="lost")
    else:
        body = NOTHING
    return tag("div", body, id="bars", role="alert")


def said(found: Watching) -> Html:
    """Return what is wrong with the workers as a sentence without a full stop, its times in the reader's zone."""
    text = found.sentence(lambda ms: f"{MARK}{ms}{MARK}", time.time_ns() // 1_000_000)
    parts = f"{text[:1].upper()}{text[1:]}".split(MARK)
    return Html().join([moment(int(part)) if number % 2 else part for number, part in enumerate(parts)])
