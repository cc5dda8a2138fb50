"""The fleet: how it stands, and its runs: halted in the last hour, warned, and others by spend."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from aiohttp import web

from streamproc.model.formats import HOUR_MS, grouped, money
from streamproc.model.time_range import time_or_age_ms
from streamproc.read_model import FleetCounts, FleetPage, LiveRun, RunFilter
from streamproc.read_model.queries import Field
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.keys import FIELDS, MODEL, element_id, field_of, filter_of, number_of, query_of, run_href
from streamproc.web.layout import empty, page
from streamproc.web.moments import moment, time_words
from streamproc.web.views.small import loop_badge, sparkline
from streamproc.web.views.strip import dismiss_form, dismissed_ms, fleet_standing, headline, strip

if TYPE_CHECKING:
    from streamproc.read_model import ReadModel

ROWS: Final = 200  # of a group on a page
NAMES_MAX: Final = 200  # of a filter's suggestions
FleetGroup = Literal["halted", "warned", "stopped", "others", "earlier", "lost"]
GROUPS: Final[dict[FleetGroup, str]] = {
    "halted": "Halted in the last hour", "warned": "Warned", "stopped": "Stopped by people",
    "others": "Others, by spend", "earlier": "Halted earlier", "lost": "Lost: no event for a long time",
}  # fmt: skip
NOTHING_THERE: Final[dict[FleetGroup, str]] = {
    "halted": "No run was halted in the last hour.",
    "warned": "No run has a warning.",
    "stopped": "No run was stopped by a person.",
    "others": "No other run is known.",
    "earlier": "",
    "lost": "No run is lost.",
}
LISTED_IF_ANY: Final = ("stopped", "earlier", "lost")
NAMED: Final[tuple[Field, ...]] = ("workflow", "tenant", "user", "code")  # what runs can be chosen by
HEADS: Final = ("Run", "State", "What happened", "Loop", "Failing tests", "Turns", "Cost", "Last heard")
NUMERIC: Final = frozenset({"Turns", "Cost"})
LETTERS: Final = {"halt": ("H", "halted"), "warn": ("W", "warned"), "stop": ("S", "stopped"), "info": ("·", "")}


async def fleet(request: web.Request) -> web.Response:
    """Serve the fleet, or with `group` and `offset` a further part of one group."""
    model, chosen = request.app[MODEL], filter_of(request)
    dismissed = dismissed_ms(request)
    standing = fleet_standing(model, dismissed)
    group, offset = field_of(request, "group"), number_of(request, "offset")
    group = "lost" if chosen.status == "lost" else group
    wanted: list[FleetGroup] = [
        one for one in GROUPS if group in ("", one) and (one != "lost" or group == "lost" or chosen_any(chosen))
    ]
    hidden_ms = 0 if group == "stopped" or chosen_any(chosen) else dismissed
    found = {one: group_page(model, one, chosen, offset=offset, dismissed_ms=hidden_ms) for one in wanted}
    live = group == "" and offset == 0
    parts = [
        strip(standing, live=live),
        filter_form(model, chosen),
        *(
            group_section(
                one, found[one], chosen, offset, dismissal(request, found[one]) if one == "stopped" else NOTHING
            )
            for one in wanted
            if one not in LISTED_IF_ANY or found[one].total or group == one
        ),
    ]
    if not chosen_any(chosen) and not any(one.total for one in found.values()) and not standing.counts.lost:
        parts[1:] = [nothing_yet(standing.counts)]
    events = "view=fleet" + query_of(chosen).replace("?", "&", 1) if live else ""
    return page(headline(standing), Html().join(parts), request, events=events)


def group_page(
    model: ReadModel, group: FleetGroup, chosen: RunFilter, *, limit: int = ROWS, offset: int = 0, dismissed_ms: int = 0
) -> FleetPage:
    """Return runs of a group of the view. Stops up to `dismissed_ms` are left out."""
    hour_ago = time.time_ns() // 1_000_000 - HOUR_MS
    if group == "halted":
        return model.runs("halted", chosen, limit=limit, offset=offset, since_ms=hour_ago, stopped=False)
    if group == "earlier":
        return model.runs("halted", chosen, limit=limit, offset=offset, before_ms=hour_ago, stopped=False)
    if group == "stopped":
        since_ms = dismissed_ms + 1 if dismissed_ms else 0
        return model.runs("halted", chosen, limit=limit, offset=offset, since_ms=since_ms, stopped=True)
    return model.runs(group, chosen, limit=limit, offset=offset)


def dismissal(request: web.Request, found: FleetPage) -> Html:
    """Return the button that dismisses the stops that are shown; nothing for none, or if all are."""
    latest_ms = max((run.halted_at_ms for run in found.rows), default=0)
    return dismiss_form(request, latest_ms) if latest_ms > dismissed_ms(request) else NOTHING


def group_of(run: LiveRun) -> FleetGroup:
    """Return the group of the view that a run is in."""
    if run.stopped:
        return "stopped"
    recent = run.halted_at_ms >= time.time_ns() // 1_000_000 - HOUR_MS
    return "earlier" if run.group == "halted" and not recent else run.group


def chosen_any(chosen: RunFilter) -> bool:
    """Return whether a filter leaves out any run."""
    return any(getattr(chosen, name) for name in FIELDS)


# -- filters


def filter_form(model: ReadModel, chosen: RunFilter) -> Html:
    """Return the form whose fields are the query of the address."""
    fields = [
        tag("label", "Search", tag("input", type="search", name="text", value=chosen.text, id="search",
                                   placeholder="run, sentence, code …"), class_="grow"),
        *(_field(model, name, getattr(chosen, name)) for name in NAMED),
    ]  # fmt: skip
    hidden = Html().join(
        tag("input", type="hidden", name=name, value=getattr(chosen, name))
        for name in ("status", "since", "until")
        if getattr(chosen, name)
    )
    clear = tag("a", "Show all", href="/") if chosen_any(chosen) else NOTHING
    class_ = "filters chosen" if chosen_any(chosen) else "filters"
    return tag(
        "form",
        *fields,
        hidden,
        tag("button", "Filter"),
        clear,
        chosen_time(chosen),
        class_=class_,
        action="/",
        role="search",
    )


def chosen_time(chosen: RunFilter) -> Html:
    """Return the stretch of time that is chosen, in words; nothing for none."""
    words = time_words(chosen.since, chosen.until)
    return tag("p", "Runs that were at work ", words, class_="chosen-time") if words else NOTHING


def _field(model: ReadModel, name: Field, value: str) -> Html:
    options = [tag("option", value=one) for one in model.names(name)[:NAMES_MAX]]
    known = tag("datalist", *options, id=f"known-{name}") if options else NOTHING
    shown = tag("input", name=name, value=value, list=f"known-{name}" if options else None, autocomplete="off")
    return tag("label", name.capitalize(), shown, known)


# -- groups and rows


def group_section(
    group: FleetGroup, found: FleetPage, chosen: RunFilter, offset: int = 0, dismiss: Html = NOTHING
) -> Html:
    """Return the runs of a group."""
    rows = [run_row(one) for one in found.rows]
    body = tag("tbody", *rows, id=f"rows-{group}", data_most=ROWS)
    heads = [tag("th", name, scope="col", class_="number" if name in NUMERIC else None) for name in HEADS]
    made = tag("table", tag("caption", GROUPS[group], class_="unseen"), tag("thead", tag("tr", *heads)), body,
               class_="runs")  # fmt: skip
    return tag(
        "section",
        tag("h2", GROUPS[group], " ", tag("span", grouped(found.total), class_="count", id=f"count-{group}")),
        tag("p", NOTHING_THERE[group], class_="none"),
        dismiss,
        tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=f"{GROUPS[group]}, table"),
        more(group, found, chosen, offset),
        class_=f"group group-{group}",
    )


def more(group: FleetGroup, found: FleetPage, chosen: RunFilter, offset: int = 0) -> Html:
    """Return the links to the runs of a group that are not on this page."""
    left = found.total - offset - len(found.rows)
    links = []
    if offset:
        before = max(0, offset - ROWS)
        links.append(tag("a", "Back", href=f"/{query_of(chosen, group=group, offset=str(before))}"))
    if left > 0:
        href = f"/{query_of(chosen, group=group, offset=str(offset + ROWS))}"
        links.append(tag("a", f"{grouped(left)} more", href=href))
    return tag("p", *links, class_="more", id=f"more-{group}")


@lru_cache(maxsize=2_048)  # of a page, most rows are as they were
def run_row(run: LiveRun) -> Html:
    """Return the row of a run."""
    scope = [foreign(one, class_="scope") for one in (run.workflow, run.tenant, run.user) if one]
    name = tag("a", foreign(run.run_id), href=run_href(run.run_id), class_="mono run-link")
    cells = [
        tag("td", name, tag("small", Html(" · ").join(scope)) if scope else NOTHING, class_="run"),
        tag("td", run_state(run), data_head="State"),
        tag("td", foreign(run.message) if run.message else NOTHING, class_="what"),
        tag("td", loop_badge(run.badge), data_head="Loop" if run.badge else None),
        tag("td", sparkline(run.failing_trend), data_head="Failing tests" if len(run.failing_trend) > 1 else None),
        tag("td", grouped(run.turns), class_="number", data_head="Turns"),
        tag("td", money(run.cost_usd_micro) if run.cost_usd_micro else "—", class_="number", data_head="Cost"),
        tag("td", moment(run.at_ms, ago=True), class_="when", data_head="Last heard"),
    ]
    return tag("tr", *cells, id=element_id(run.run_id), class_=f"row-{_look(run)}", data_order=order_of(run))


def order_of(run: LiveRun) -> int:
    """Return the place of a run in its group: the largest comes first."""
    if run.group == "halted":
        return run.halted_at_ms
    return run.at_ms if run.group == "warned" else run.cost_usd_micro


def run_state(run: LiveRun) -> Html:
    """Return whether a run works, is warned, halted or finished, with the code of its decision."""
    letter, word = LETTERS["stop" if run.stopped else "halt" if run.status == "halted" else run.severity]
    word = "finished" if run.status == "finished" else word or "working"
    code = Html().join([" ", tag("code", run.code)]) if run.code else NOTHING
    word = "lost" if run.lost else word
    mark = tag("b", letter, class_=f"flag flag-of-{_look(run)}", aria_hidden="true")
    return tag("span", mark, tag("span", word, class_=f"word-{_look(run)}"), code, class_="state")


def _look(run: LiveRun) -> str:
    """Return the ending of the classes of a run: what a person has stopped is no alarm."""
    return "others" if run.stopped else run.group


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


def fits(run: LiveRun, chosen: RunFilter) -> bool:
    """Return whether a run fits a filter, as the read model decides it."""
    for name in ("workflow", "tenant", "user", "code", "status"):
        wanted = getattr(chosen, name)
        if wanted and getattr(run, name) != wanted:
            return False
    now_ms = time.time_ns() // 1_000_000
    if run.at_ms < time_or_age_ms(chosen.since, now_ms):
        return False
    until_ms = time_or_age_ms(chosen.until, now_ms)
    if until_ms and run.started_ms >= until_ms:
        return False
    texts = (run.run_id, run.workflow, run.user, run.code, run.message)
    return not chosen.text or any(chosen.text.casefold() in one.casefold() for one in texts)
