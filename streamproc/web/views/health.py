"""Which workers live, how far this page has read, and what the workers have refused."""

from __future__ import annotations

import time
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from aiohttp import web

from streamproc.model.formats import grouped
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import Cell, TableRow, folded, muted, number, section, table
from streamproc.web.keys import MODEL, READER
from streamproc.web.layout import UP_IS_GONE, page, watching_sentence
from streamproc.web.moments import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.fleet.watching import Watching
    from streamproc.fleet.workers import Lag, WorkerRow
    from streamproc.model.provider_state import ProviderState
    from streamproc.read_model.rows import FleetCounts, PartitionHealth, RefusedRow

SHOWN: Final = 50  # refused records
READ_MAX: Final = 10_000
WORKERS_SHOWN: Final = 100
PARTITIONS_SHOWN: Final = 20  # in a tip
NONE: Final = tag("span", "—", class_="muted")
STATES: Final = {"deciding": "deciding", "restoring": "restoring states", "stopped": "stopped", "silent": "gone"}
LATE_RECORDS: Final = 1_000  # behind the end of the log: more than a moment


async def health(request: web.Request) -> web.Response:
    """Serve the workers, the positions of the page in its topics, and the refused records by reason."""
    model, reader = request.app[MODEL], request.app[READER]
    counts, found = model.counts(time.time_ns() // 1_000_000), reader.watching()
    parts = [
        tag("h1", "Health"),
        tag(
            "p",
            "Which workers decide, how far this page has read the topics, and which records the workers have refused.",
            class_="lead",
        ),
        tag(
            "div",
            standing(counts),
            workers(found, has_topic=reader.has_workers) if reader.up_runs is None else local_judge(reader.up_runs),
            providers(found.providers),
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


def local_judge(runs: bool) -> Html:
    """Return whether the `streamproc up` runs whose log is shown."""
    said = "streamproc up runs, and judges what it is sent." if runs else UP_IS_GONE
    return section("streamproc up", tag("p", said, class_=f"note {'fine' if runs else 'bad'}"), id_="workers")


def workers(found: Watching, *, has_topic: bool = True) -> Html:
    """Return the workers, and what is wrong with them."""
    if not has_topic:
        text = Html().join([
            "Nothing is known of the workers: their topic does not exist, or this page must not read it. Apply ",
            tag("code", "streamproc topics apply"), " and ", tag("code", "streamproc topics acls --role page"), ".",
        ])  # fmt: skip
        return section("Workers", tag("p", text, class_="note"), id_="workers")
    parts = []
    if sentence := watching_sentence(found):
        parts.append(tag("p", sentence, ".", class_="note bad" if found.level == "fail" else "note"))
    if found.refused:
        parts.append(muted(foreign(found.refused), "."))
    if not found.rows:
        return section("Workers", *parts, id_="workers")
    late = {lag.worker: lag for lag in reversed(found.lagging)}
    rows = [_worker(row, late.get(row.heartbeat.worker)) for row in found.rows[:WORKERS_SHOWN]]
    heads = ["Worker", "State", "Partitions", "Late by", "Policy", "Version", "Started", "Last decision",
             "Last heartbeat"]  # fmt: skip
    if len(found.rows) > WORKERS_SHOWN:
        parts.append(muted(f"{len(found.rows) - WORKERS_SHOWN} more are not shown."))
    return section("Workers", *parts, table(heads, rows), id_="workers")


def _worker(row: WorkerRow, lag: Lag | None) -> TableRow:
    beat = row.heartbeat
    bad = row.state in ("silent", "restoring")
    shown = ", ".join(map(str, beat.partitions[:PARTITIONS_SHOWN]))
    tip = f"{shown}, …" if len(beat.partitions) > PARTITIONS_SHOWN else shown
    owned = tag("span", grouped(len(beat.partitions)), title=tip or None) if row.state == "deciding" else NONE
    policy = Html().join([foreign(beat.policy), " ", foreign(beat.policy_hash[:8], code=True)])
    return TableRow([
        tag("strong", foreign(beat.worker)), tag("span", STATES[row.state], class_="sev-warn" if bad else None),
        number(owned),
        tag("span", f"{grouped(lag.delay_ms // 1000)} s", class_="sev-warn") if lag is not None else NONE,
        policy, foreign(beat.version), Cell(moment(beat.started)), Cell(moment(beat.decided_at, ago=True)),
        Cell(moment(row.at_ms, ago=True)),
    ])  # fmt: skip


def providers(states: Sequence[ProviderState]) -> Html:
    """Return the breakers of providers that hold calls back; nothing if none does."""
    if not states:
        return NOTHING
    rows = [
        TableRow([
            tag("strong", foreign(one.provider)), tag("span", one.state.replace("_", "-"), class_="sev-warn"),
            Cell(foreign(one.reason), "wide"), Cell(moment(one.since_ms)),
            Cell(moment(one.until_ms)) if one.until_ms else NONE, number(grouped(one.waiting)),
        ])
        for one in states
    ]  # fmt: skip
    heads = ["Provider and model", "State", "Why", "Since", "Until", "Callers that wait"]
    return section("Providers", table(heads, rows), id_="providers")


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
