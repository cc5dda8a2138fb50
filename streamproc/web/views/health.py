"""How far this page has read, and what the workers have refused."""

from __future__ import annotations

import time
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from aiohttp import web

from streamproc.model.formats import grouped
from streamproc.report.markup import Html, foreign, tag
from streamproc.report.tables import Cell, TableRow, folded, muted, number, section, table
from streamproc.web.keys import MODEL
from streamproc.web.layout import moment, page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.read_model import FleetCounts, RefusedRow
    from streamproc.read_model.rows import PartitionHealth

SHOWN: Final = 50  # refused records
READ_MAX: Final = 10_000
LATE_RECORDS: Final = 1_000  # behind the end of the log: more than a moment


async def health(request: web.Request) -> web.Response:
    """Serve the positions of the page in its topics, and the refused records by reason."""
    model = request.app[MODEL]
    counts = model.counts(time.time_ns() // 1_000_000)
    parts = [
        tag("h1", "Health"),
        tag("p", "How far this page has read the topics, and which records the workers have refused.", class_="lead"),
        tag(
            "div",
            standing(counts),
            partitions(model.health()),
            refused(model.refused(limit=READ_MAX)),
            id="health",
            data_live=True,
        ),
    ]
    return page("Health", Html().join(parts), request, events="view=health")


def standing(counts: FleetCounts) -> Html:
    """Return whether what the page shows is complete and current."""
    if not counts.caught_up:
        share = f"{100 * counts.read_share:.0f} %"
        return tag("p", f"The page is still reading what was there when it started: {share}.", class_="note")
    if counts.behind_records > LATE_RECORDS:
        text = f"The page is {grouped(counts.behind_records)} records behind its topics: what it shows is late."
        return tag("p", text, class_="note")
    return tag("p", "The page has read its topics to their ends.", class_="note fine")


def partitions(rows: Sequence[PartitionHealth]) -> Html:
    """Return how far each topic was read, and below it each partition."""
    if not rows:
        return section("Topics", muted("No partition is read yet: the broker has not answered."))
    ordered = sorted(rows, key=lambda one: (one.topic, one.partition))
    topics = [
        TableRow([
            tag("strong", topic), number(len(own)), _behind(sum(one.behind for one in own)),
            Cell(moment(max(one.last_ms for one in own))),
        ])
        for topic, own in ((topic, list(own)) for topic, own in groupby(ordered, lambda one: one.topic))
    ]  # fmt: skip
    each = [
        TableRow([
            one.topic, number(one.partition), number(grouped(one.position)),
            number(grouped(one.end) if one.end >= 0 else "—"), _behind(one.behind), Cell(moment(one.last_ms)),
        ])
        for one in ordered
    ]  # fmt: skip
    heads = ["Topic", "Partition", "Position", "End", "Behind", "Last record"]
    return section("Topics", table(["Topic", "Partitions", "Behind", "Last record"], topics)) + folded(
        "Partitions", table(heads, each), id_="partitions"
    )


def _behind(records: int) -> Cell:
    return number(tag("span", grouped(records), class_="sev-warn" if records > LATE_RECORDS else None))


def refused(rows: Sequence[RefusedRow]) -> Html:
    """Return the refused records: counts by reason, then the latest."""
    if not rows:
        return section("Refused records", muted("None: the dead-letter topic is empty."))
    reasons = Counter((one.reason, one.field_path) for one in rows)
    tally = [TableRow([Cell(foreign(reason), "wide"), foreign(path, code=True), number(grouped(count))])
             for (reason, path), count in reasons.most_common(SHOWN)]  # fmt: skip
    latest = [
        TableRow([
            moment(one.at_ms), Cell(foreign(one.reason), "wide"), foreign(one.field_path, code=True),
            Cell(Html().join([foreign(one.source_topic), f" {one.source_partition}, offset {one.source_offset}"])),
        ])
        for one in rows[:SHOWN]
    ]  # fmt: skip
    return section(
        "Refused records",
        muted("Records that the workers could not use, from the dead-letter topic. Their content is not shown."),
        table(["Reason", "Field", "Times"], tally),
        tag("h3", "The latest"),
        table(["When", "Reason", "Field", "Record"], latest),
    )
