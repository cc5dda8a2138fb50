"""The stream of decisions, the newest first, and each as it was published."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from streamproc.read_model.rows import DecisionFilter, DecisionRow
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import captioned
from streamproc.web.keys import MODEL, field_of, run_href
from streamproc.web.layout import empty, page
from streamproc.web.moments import moment, time_words

ROWS: Final = 200
FIELDS: Final = tuple(one.name for one in fields(DecisionFilter))
SEVERITIES: Final = {"halt": "H", "warn": "W", "info": "·"}
GROUP_OF: Final = {"halt": "halted", "warn": "warned", "info": "others"}


async def decisions(request: web.Request) -> web.Response:
    """Serve the decisions that fit the query."""
    chosen = DecisionFilter(**{name: field_of(request, name) for name in FIELDS})
    found = request.app[MODEL].decisions(chosen, limit=ROWS + 1)
    rows, older = found[:ROWS], found[ROWS:]
    body = tag("div", _table(rows) if rows else _none(chosen), id="decisions", data_live=not chosen.before)
    more = tag("a", "Older", href=_query(replace(chosen, before=rows[-1].id))) if older else NOTHING
    newest = tag("a", "Newest", href=_query(replace(chosen, before=""))) if chosen.before else NOTHING
    lead = "What the detectors decided, the newest first. A row leads to the turn and its evidence."
    parts = [
        tag("h1", "Decisions"),
        tag("p", lead, class_="lead"),
        _form(chosen),
        body,
        tag("p", newest, more, class_="more"),
    ]
    return page("Decisions", Html().join(parts), request, events="" if chosen.before else "view=decisions")


def _query(chosen: DecisionFilter) -> str:
    wanted = {name: value for name in FIELDS if (value := getattr(chosen, name))}
    return f"/decisions?{urlencode(wanted, errors='replace')}"


def _none(chosen: DecisionFilter) -> Html:
    if any(getattr(chosen, name) for name in FIELDS):
        return empty(
            "No decision fits", "Take something out of the filter, or ", tag("a", "show all", href="/decisions")
        )
    return empty("No decisions yet", "They appear here as soon as a detector warns of a run or halts it.")


def _form(chosen: DecisionFilter) -> Html:
    severities = [
        tag("option", name, value=value, selected=chosen.severity == value)
        for value, name in (("", "all"), ("halt", "halts"), ("warn", "warnings"), ("info", "information"))
    ]
    fields_ = [
        tag("label", "Search", tag("input", type="search", name="text", value=chosen.text, id="search"), class_="grow"),
        tag("label", "Severity", tag("select", *severities, name="severity")),
        *(tag("label", name, tag("input", name=field, value=getattr(chosen, field), autocomplete="off"))
          for field, name in (("code", "Code"), ("run_id", "Run"), ("workflow", "Workflow"), ("tenant", "Tenant"))),
    ]  # fmt: skip
    hidden = [
        tag("input", type="hidden", name=name, value=value) for name in ("since", "until")
        if (value := getattr(chosen, name))
    ]  # fmt: skip
    words = time_words(chosen.since, chosen.until)
    time = tag("p", "Decided ", words, ". ", tag("a", "At any time", href=_query(replace(chosen, since="", until=""))),
               class_="chosen-time") if words else NOTHING  # fmt: skip
    return tag(
        "form", *fields_, *hidden, tag("button", "Filter"), time, class_="filters", action="/decisions", role="search"
    )


def _table(rows: tuple[DecisionRow, ...]) -> Html:
    heads = ("When", "Severity", "Run", "Turn", "What it says", "JSON")
    made = captioned("Decisions, the newest first", "decisions", heads, map(decision_row, rows), numbers=("Turn",),
                     class_="runs")  # fmt: skip
    return tag("section", made, class_="group")


def decision_row(one: DecisionRow) -> Html:
    """Return the row of a decision."""
    group = GROUP_OF.get(one.severity, "others")
    href = f"{run_href(one.run_id, decision=one.id)}#evidence"
    scope = [foreign(name, class_="scope") for name in (one.workflow, one.tenant, one.user) if name]
    letter = tag("b", SEVERITIES.get(one.severity, "?"), class_=f"flag flag-of-{group}", aria_hidden="true")
    word = tag("span", one.severity, class_=f"word-{group}")
    severity = tag("span", letter, word, " ", tag("code", one.code), class_="state")
    return tag(
        "tr",
        tag("td", moment(one.at_ms), class_="when"),
        tag("td", severity),
        tag("td", tag("a", foreign(one.run_id), href=href, class_="mono run-link"),
            tag("small", Html(" · ").join(scope)) if scope else NOTHING, class_="run"),
        tag("td", "—" if one.turn is None else one.turn, class_="number", data_head="Turn"),
        tag("td", foreign(one.message), class_="what"),
        tag("td", tag("a", "JSON", href=f"/decisions/{one.id}.json", aria_label=f"JSON of decision {one.id}")),
    )  # fmt: skip


async def raw(request: web.Request) -> web.Response:
    """Serve a decision as it was published."""
    found = request.app[MODEL].decision(request.match_info["id"])
    if found is None:
        raise web.HTTPNotFound
    return web.Response(body=found.body, content_type="application/json", charset="utf-8")
