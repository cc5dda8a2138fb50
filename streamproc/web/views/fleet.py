"""The fleet: how it stands, and its runs: halted in the last hour, warned, and others by spend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from streamproc.report.markup import NOTHING, Html, tag
from streamproc.web.access import session_of
from streamproc.web.access.own_address import own_path
from streamproc.web.keys import MODEL, ORDERS, field_of, filter_of, number_of
from streamproc.web.layout import empty, page
from streamproc.web.order_views import selection_bar
from streamproc.web.views.run_filters import chosen_any, filter_form
from streamproc.web.views.run_rows import GROUPS, FleetGroup, ListView, group_page, more, run_table
from streamproc.web.views.strip import dismiss_form, dismissed_ms, fleet_standing, headline, strip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.read_model import FleetCounts, FleetPage, ReadModel
    from streamproc.web.access import Session


async def fleet(request: web.Request) -> web.Response:
    """Serve the fleet, or with `group` and `offset` a further part of one group."""
    model, session = request.app[MODEL], session_of(request)
    view = list_view(request, session)
    dismissed = dismissed_ms(request)
    standing = fleet_standing(model, dismissed)
    group, offset = field_of(request, "group"), number_of(request, "offset")
    hidden_ms = 0 if group == "stopped" or chosen_any(view.chosen) else dismissed
    found = found_groups(model, view, group, offset, hidden_ms)
    live = group == "" and offset == 0
    parts = [strip(standing, live=live)]
    if chosen_any(view.chosen) or standing.counts.lost or any(one.total for one in found.values()):
        here = own_path(request.path_qs)
        parts += [filter_form(model, view), run_list(found, view, offset), dismissal(request, found)]
        parts.append(selection_bar(session, request.app[ORDERS], here))
    else:
        parts.append(nothing_yet(standing.counts))
    events = "view=fleet" + view.query().replace("?", "&", 1) if live else ""
    return page(headline(standing), Html().join(parts), request, events=events)


def list_view(request: web.Request, session: Session | None) -> ListView:
    """Return which runs a request wants to see, and how; those who may order something of a run can select it."""
    selectable = request.app[ORDERS].allows(session, "halt")
    return ListView(filter_of(request), field_of(request, "sort"), selectable)


def found_groups(
    model: ReadModel, view: ListView, group: str, offset: int, dismissed_ms: int
) -> dict[FleetGroup, FleetPage]:
    """Return the runs to show by group: of all groups, or of one. Stops up to `dismissed_ms` are left out."""
    group = "lost" if view.chosen.status == "lost" else group
    wanted: list[FleetGroup] = [
        one for one in GROUPS if group in ("", one) and (one != "lost" or group == "lost" or chosen_any(view.chosen))
    ]
    return {
        one: group_page(model, one, view.chosen, offset=offset, sort=view.sort, dismissed_ms=dismissed_ms)
        for one in wanted
    }


def dismissal(request: web.Request, found: Mapping[FleetGroup, FleetPage]) -> Html:
    """Return the button that dismisses the stops that are shown; nothing for none, or if all are."""
    stopped = found.get("stopped")
    latest_ms = max((run.halted_at_ms for run in stopped.rows), default=0) if stopped is not None else 0
    return dismiss_form(request, latest_ms) if latest_ms > dismissed_ms(request) else NOTHING


def run_list(found: Mapping[FleetGroup, FleetPage], view: ListView, offset: int = 0) -> Html:
    """Return the list of runs, with what to do if no run fits."""
    table = tag("div", run_table(found, view), class_="scroll", tabindex="0", role="region", aria_label="Runs, table")
    none = empty("No run fits", "Take something out of the filter, or ", tag("a", "show all runs", href="/"), ".")
    links = [more(group, one, view, offset) for group, one in found.items()]
    return tag("section", table, tag("div", none, class_="none"), *links, class_="run-list", id="run-list")


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
