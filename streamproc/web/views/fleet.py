"""The fleet: how it stands, and its runs: halted in the last hour, warned, and others by spend."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import web

from streamproc.errors import plural
from streamproc.model.formats import duration, grouped, money
from streamproc.read_model import FleetCounts, RunFilter
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.access import session_of
from streamproc.web.access.own_address import own_path
from streamproc.web.keys import MODEL, ORDERS, field_of, filter_of, number_of
from streamproc.web.layout import empty, page
from streamproc.web.order_views import selection_bar
from streamproc.web.views.run_filters import chosen_any, filter_form
from streamproc.web.views.run_rows import GROUPS, FleetGroup, ListView, group_page, more, run_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.read_model import FleetPage, ReadModel
    from streamproc.web.access import Session

FLEET_WORDS: Final = {"CLEAR": "running", "PAUSE": "paused", "STOP": "stopped"}
LATE_MS: Final = 5_000  # a delay of decisions that people should know of


async def fleet(request: web.Request) -> web.Response:
    """Serve the fleet, or with `group` and `offset` a further part of one group."""
    model, session = request.app[MODEL], session_of(request)
    view = list_view(request, session)
    standing = fleet_standing(model)
    group, offset = field_of(request, "group"), number_of(request, "offset")
    found = found_groups(model, view, group, offset)
    live = group == "" and offset == 0
    parts = [strip(standing, live=live)]
    if chosen_any(view.chosen) or standing.counts.lost or any(one.total for one in found.values()):
        here = own_path(request.path_qs)
        parts += [filter_form(model, view), run_list(found, view, offset)]
        parts.append(selection_bar(session, request.app[ORDERS], here))
    else:
        parts.append(nothing_yet(standing.counts))
    events = "view=fleet" + view.query().replace("?", "&", 1) if live else ""
    return page(headline(standing), Html().join(parts), request, events=events)


def list_view(request: web.Request, session: Session | None) -> ListView:
    """Return which runs a request wants to see, and how; those who may order something of a run can select it."""
    selectable = request.app[ORDERS].allows(session, "halt")
    return ListView(filter_of(request), field_of(request, "sort"), selectable)


def found_groups(model: ReadModel, view: ListView, group: str, offset: int) -> dict[FleetGroup, FleetPage]:
    """Return the runs to show by group: of all groups, or of one."""
    group = "lost" if view.chosen.status == "lost" else group
    wanted: list[FleetGroup] = [
        one for one in GROUPS if group in ("", one) and (one != "lost" or group == "lost" or chosen_any(view.chosen))
    ]
    return {one: group_page(model, one, view.chosen, offset=offset, sort=view.sort) for one in wanted}


def run_list(found: Mapping[FleetGroup, FleetPage], view: ListView, offset: int = 0) -> Html:
    """Return the list of runs, with what to do if no run fits."""
    table = tag("div", run_table(found, view), class_="scroll", tabindex="0", role="region", aria_label="Runs, table")
    none = empty("No run fits", "Take something out of the filter, or ", tag("a", "show all runs", href="/"), ".")
    links = [more(group, one, view, offset) for group, one in found.items()]
    return tag("section", table, tag("div", none, class_="none"), *links, class_="run-list", id="run-list")


class FleetStanding(NamedTuple):
    """How the fleet stands, and how many runs were halted in the last hour."""

    counts: FleetCounts
    halted: int


def fleet_standing(model: ReadModel) -> FleetStanding:
    """Return how the fleet stands now."""
    halted = group_page(model, "halted", RunFilter(), limit=1).total
    return FleetStanding(model.counts(time.time_ns() // 1_000_000), halted)


# -- strip


def headline(standing: FleetStanding) -> str:
    """Return how the fleet stands, in a sentence."""
    counts, halted = standing
    if counts.fleet_status != "CLEAR":
        return f"The fleet is {FLEET_WORDS.get(counts.fleet_status, counts.fleet_status)}"
    if halted:
        return f"{plural(halted, 'run')} halted in the last hour"
    if counts.warned:
        return f"{plural(counts.warned, 'run')} with a warning"
    return "Nothing is stuck"


def _delay(ms: int | None) -> str:
    if ms is None:
        return "—"
    return f"{ms} ms" if ms < 1_000 else duration(ms)


def strip(standing: FleetStanding, *, live: bool = True) -> Html:
    """Return the fleet at a glance."""
    counts, halted = standing
    state = "halted" if halted or counts.fleet_status == "STOP" else (
        "warned" if counts.warned or counts.fleet_status != "CLEAR" else "fine"
    )  # fmt: skip
    late = counts.delay_ms is not None and counts.delay_ms > LATE_MS
    tiles = [
        _tile("Working", grouped(counts.working)),
        _tile("Warned", grouped(counts.warned), "is-warn" if counts.warned else ""),
        _tile("Halted, last hour", grouped(halted), "is-halt" if halted else ""),
        *([_tile("Lost", tag("a", grouped(counts.lost), href="/?group=lost"))] if counts.lost else []),
        _tile("Turns a second", f"{counts.turns_per_second:.1f}"),
        _tile("Spend an hour", money(counts.spend_usd_micro_per_hour) if counts.spend_usd_micro_per_hour else "—"),
        _tile("Decided after", _delay(counts.delay_ms), "is-warn" if late else ""),
    ]
    return tag(
        "section",
        tag("div", tag("h1", headline(standing)), _order(counts), class_="headline"),
        tag("dl", *tiles, class_="tiles"),
        _reading(counts),
        class_=f"strip {state}",
        id="strip",
        aria_live="polite" if live else None,
    )


def _tile(name: str, value: str | Html, class_: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", value), class_=class_ or None)


def _order(counts: FleetCounts) -> Html:
    """Return who stopped or paused the fleet, and why."""
    if counts.fleet_status == "CLEAR":
        return NOTHING
    by = Html().join([" by ", foreign(counts.fleet_by)]) if counts.fleet_by else NOTHING
    why = Html().join([": ", foreign(counts.fleet_why)]) if counts.fleet_why else NOTHING
    return tag("p", tag("strong", counts.fleet_status), by, why, class_="lead")


def _reading(counts: FleetCounts) -> Html:
    if counts.caught_up and counts.behind_records < 1_000:
        return NOTHING
    if not counts.caught_up:
        return tag("p", tag("progress", value=f"{counts.read_share:.3f}", max=1, aria_label="read"),
                   f" Reading the topics: {100 * counts.read_share:.0f} %. What you see is not complete.",
                   class_="reading")  # fmt: skip
    return tag("p", f"This page is {grouped(counts.behind_records)} records behind its topics.", class_="reading")


def nothing_yet(counts: FleetCounts) -> Html:
    """Return what stands there before the first run."""
    if not counts.caught_up:
        return empty("Reading what the workers have published …", "Runs appear here as soon as they are read.")
    return empty(
        "No runs yet",
        "Runs appear here with their first turn. Publish some: ",
        tag("code", "streamproc publish turns.jsonl"),
        ", and see that a worker runs: ",
        tag("code", "streamproc worker"),
        ".",
    )
