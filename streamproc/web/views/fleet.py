"""The fleet: how it stands, and its runs: halted in the last hour, warned, and others by spend."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aiohttp import web

from streamproc.errors import plural
from streamproc.model.formats import HOUR_MS, duration, grouped, money
from streamproc.read_model import FleetCounts, FleetPage, LiveRun, RunFilter
from streamproc.read_model.queries import Field
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.keys import FIELDS, MODEL, element_id, field_of, filter_of, number_of, query_of, run_href
from streamproc.web.layout import empty, page
from streamproc.web.moments import moment
from streamproc.web.views.small import loop_badge, sparkline

if TYPE_CHECKING:
    from streamproc.read_model import ReadModel

ROWS: Final = 200  # of a group on a page
NAMES_MAX: Final = 200  # of a filter's suggestions
FleetGroup = Literal["halted", "warned", "others", "earlier"]
GROUPS: Final[dict[FleetGroup, str]] = {
    "halted": "Halted in the last hour", "warned": "Warned", "others": "Others, by spend",
    "earlier": "Halted earlier",
}  # fmt: skip
NOTHING_THERE: Final[dict[FleetGroup, str]] = {
    "halted": "No run was halted in the last hour.",
    "warned": "No run has a warning.",
    "others": "No other run is known.",
    "earlier": "",
}
NAMED: Final[tuple[Field, ...]] = ("workflow", "tenant", "user", "code")  # what runs can be chosen by
HEADS: Final = ("Run", "State", "What happened", "Loop", "Failing tests", "Turns", "Cost", "Last heard")
NUMERIC: Final = frozenset({"Turns", "Cost"})
LETTERS: Final = {"halt": ("H", "halted"), "warn": ("W", "warned"), "info": ("·", "")}
FLEET_WORDS: Final = {"CLEAR": "running", "PAUSE": "paused", "STOP": "stopped"}
LATE_MS: Final = 5_000  # a delay of decisions that people should know of


async def fleet(request: web.Request) -> web.Response:
    """Serve the fleet, or with `group` and `offset` a further part of one group."""
    model, chosen = request.app[MODEL], filter_of(request)
    standing = fleet_standing(model)
    group, offset = field_of(request, "group"), number_of(request, "offset")
    wanted: list[FleetGroup] = [one for one in GROUPS if group in ("", one)]
    found = {one: group_page(model, one, chosen, offset=offset) for one in wanted}
    live = group == "" and offset == 0
    parts = [
        strip(standing, live=live),
        filter_form(model, chosen),
        *(group_section(one, found[one], chosen, offset) for one in wanted if one != "earlier" or found[one].total),
    ]
    if not chosen_any(chosen) and not any(one.total for one in found.values()):
        parts[1:] = [nothing_yet(standing.counts)]
    events = "view=fleet" + query_of(chosen).replace("?", "&", 1) if live else ""
    return page(headline(standing), Html().join(parts), request, events=events)


class FleetStanding(NamedTuple):
    """How the fleet stands, and how many runs were halted in the last hour."""

    counts: FleetCounts
    halted: int


def fleet_standing(model: ReadModel) -> FleetStanding:
    """Return how the fleet stands now."""
    halted = group_page(model, "halted", RunFilter(), limit=1).total
    return FleetStanding(model.counts(time.time_ns() // 1_000_000), halted)


def group_page(
    model: ReadModel, group: FleetGroup, chosen: RunFilter, *, limit: int = ROWS, offset: int = 0
) -> FleetPage:
    """Return runs of a group of the view."""
    hour_ago = time.time_ns() // 1_000_000 - HOUR_MS
    if group == "halted":
        return model.runs("halted", chosen, limit=limit, offset=offset, since_ms=hour_ago)
    if group == "earlier":
        return model.runs("halted", chosen, limit=limit, offset=offset, before_ms=hour_ago)
    return model.runs(group, chosen, limit=limit, offset=offset)


def group_of(run: LiveRun) -> FleetGroup:
    """Return the group of the view that a run is in."""
    recent = run.halted_at_ms >= time.time_ns() // 1_000_000 - HOUR_MS
    return "earlier" if run.group == "halted" and not recent else run.group


def chosen_any(chosen: RunFilter) -> bool:
    """Return whether a filter leaves out any run."""
    return any(getattr(chosen, name) for name in FIELDS)


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


def _tile(name: str, value: str, class_: str = "") -> Html:
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


# -- filters


def filter_form(model: ReadModel, chosen: RunFilter) -> Html:
    """Return the form whose fields are the query of the address."""
    fields = [
        tag("label", "Search", tag("input", type="search", name="text", value=chosen.text, id="search",
                                   placeholder="run, sentence, code …"), class_="grow"),
        *(_field(model, name, getattr(chosen, name)) for name in NAMED),
    ]  # fmt: skip
    hidden = tag("input", type="hidden", name="status", value=chosen.status) if chosen.status else NOTHING
    clear = tag("a", "Show all", href="/") if chosen_any(chosen) else NOTHING
    class_ = "filters chosen" if chosen_any(chosen) else "filters"
    return tag("form", *fields, hidden, tag("button", "Filter"), clear, class_=class_, action="/", role="search")


def _field(model: ReadModel, name: Field, value: str) -> Html:
    options = [tag("option", value=one) for one in model.names(name)[:NAMES_MAX]]
    known = tag("datalist", *options, id=f"known-{name}") if options else NOTHING
    shown = tag("input", name=name, value=value, list=f"known-{name}" if options else None, autocomplete="off")
    return tag("label", name.capitalize(), shown, known)


# -- groups and rows


def group_section(group: FleetGroup, found: FleetPage, chosen: RunFilter, offset: int = 0) -> Html:
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
    return tag("tr", *cells, id=element_id(run.run_id), class_=f"row-{run.group}", data_order=order_of(run))


def order_of(run: LiveRun) -> int:
    """Return the place of a run in its group: the largest comes first."""
    if run.group == "halted":
        return run.halted_at_ms
    return run.at_ms if run.group == "warned" else run.cost_usd_micro


def run_state(run: LiveRun) -> Html:
    """Return whether a run works, is warned, halted or finished, with the code of its decision."""
    letter, word = LETTERS["halt" if run.status == "halted" else run.severity]
    word = "finished" if run.status == "finished" else word or "working"
    code = Html().join([" ", tag("code", run.code)]) if run.code else NOTHING
    mark = tag("b", letter, class_=f"flag flag-of-{run.group}", aria_hidden="true")
    return tag("span", mark, tag("span", word, class_=f"word-{run.group}"), code, class_="state")


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
    texts = (run.run_id, run.workflow, run.user, run.code, run.message)
    return not chosen.text or any(chosen.text.casefold() in one.casefold() for one in texts)
