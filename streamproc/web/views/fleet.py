"""The fleet: how it stands, and its runs: halted in the last hour, warned, and others by spend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from streamproc.model.formats import clock
from streamproc.model.time_range import time_or_age_ms, wall_ms
from streamproc.report.markup import NOTHING, Html, tag
from streamproc.report.tables import scrolled
from streamproc.web.access import session_of
from streamproc.web.access.own_address import own_path
from streamproc.web.command_views import selection_bar
from streamproc.web.keys import COMMANDS, FIELDS, MODEL, field_of, filter_of, number_of
from streamproc.web.layout import empty, page
from streamproc.web.moments import moment
from streamproc.web.views.run_rows import GROUPS, FleetGroup, ListView, group_page, more, run_table
from streamproc.web.views.strip import dismiss_form, dismissed_ms, fleet_standing, headline, strip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.queries import Field
    from streamproc.read_model.rows import FleetCounts, FleetPage, RunFilter
    from streamproc.web.access import Session

NAMES_MAX: Final = 200  # of a filter's suggestions
NAMED: Final[tuple[Field, ...]] = ("workflow", "tenant", "user", "code")  # what runs can be chosen by
STATES: Final = {"": "Any state", "running": "Running", "halted": "Halted", "finished": "Finished", "lost": "Lost"}
AGES: Final = {
    "": "Any time", "15m": "Last 15 minutes", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days",
}  # fmt: skip


def chosen_any(chosen: RunFilter) -> bool:
    """Return whether a filter leaves out any run."""
    return any(getattr(chosen, name) for name in FIELDS)


def filter_form(model: ReadModel, view: ListView) -> Html:
    """Return the form whose fields are the query of the address."""
    chosen = view.chosen
    search = tag("input", type="search", name="text", value=chosen.text, id="search", aria_label="Search",
                 placeholder="Search runs, sentences, codes", aria_keyshortcuts="/")  # fmt: skip
    hidden = [tag("input", type="hidden", name="sort", value=view.sort)] if view.sort else []
    clear = tag("a", "Show all", href="/") if chosen_any(chosen) else NOTHING
    return tag(
        "form",
        tag("span", search, class_="grow"),
        *(_field(model, name, getattr(chosen, name)) for name in NAMED),
        _choice("status", "State", STATES, chosen.status),
        *_times(chosen),
        *hidden,
        tag("button", "Filter"),
        clear,
        class_="filters chosen" if chosen_any(chosen) else "filters",
        id="filters",
        action="/",
        role="search",
    )


def _field(model: ReadModel, name: Field, value: str) -> Html:
    options = [tag("option", value=one) for one in model.names(name)[:NAMES_MAX]]
    if not options and not value:  # no run has one
        return NOTHING
    label = name.capitalize()
    shown = tag("input", name=name, value=value, list=f"known-{name}", autocomplete="off", aria_label=label,
                placeholder=label)  # fmt: skip
    return tag("span", shown, tag("datalist", *options, id=f"known-{name}"))


def _choice(name: str, label: str, options: dict[str, str], value: str) -> Html:
    listed = [tag("option", words, value=one, selected=one == value) for one, words in options.items()]
    return tag("span", tag("select", *listed, name=name, aria_label=label))


def _times(chosen: RunFilter) -> list[Html]:
    """Return the choice of an age; a time range of another page, such as a point of a chart, is shown as it is."""
    if chosen.since in AGES and not chosen.until:
        return [_choice("since", "Time", AGES, chosen.since)]
    kept = [tag("input", type="hidden", name=name, value=value)
            for name, value in (("since", chosen.since), ("until", chosen.until)) if value]  # fmt: skip
    ends = [time_or_age_ms(one, wall_ms()) for one in (chosen.since, chosen.until)]
    return [*kept, tag("span", _time(ends[0], "the start"), " to ", _time(ends[1], "now"), class_="range")]


def _time(at_ms: int, otherwise: str) -> Html:
    return moment(at_ms) if clock(at_ms) else tag("span", otherwise)


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
        parts.append(selection_bar(session, request.app[COMMANDS], here))
    else:
        parts.append(nothing_yet(standing.counts))
    events = "view=fleet" + view.query().replace("?", "&", 1) if live else ""
    return page(headline(standing), Html().join(parts), request, events=events)


def list_view(request: web.Request, session: Session | None) -> ListView:
    """Return which runs a request wants to see, and how; those who may send commands can select runs."""
    selectable = request.app[COMMANDS].allows(session, "halt")
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
    table = scrolled(run_table(found, view), "Runs, table")
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
