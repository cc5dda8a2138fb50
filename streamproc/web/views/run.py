"""One run: what it does and why it was halted, by the same sections as its report; commands; downloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from streamproc.core.decision import Decision
from streamproc.fleet.verbs import RULES
from streamproc.model.addresses import trace_address
from streamproc.model.formats import grouped, money
from streamproc.model.wire import Call, Content, Turn
from streamproc.read_model.rows import LiveRun
from streamproc.report.building import ReportBuilder
from streamproc.report.drawings import TimelineForm
from streamproc.report.history import RunHistory
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.model import RunReport
from streamproc.report.run_sections import LiveParts, heading, run_sections
from streamproc.report.tables import TableRow, muted, number, section, table
from streamproc.report.writing import report_text
from streamproc.web.access import session_of
from streamproc.web.command_views import SELECTED, command_form, why_not
from streamproc.web.keys import COMMANDS, LIVE, MODEL, RUN_LOG, SETTINGS, field_of, run_href, run_of
from streamproc.web.layout import missing, page
from streamproc.web.moments import moment
from streamproc.web.views.run_rows import run_state
from streamproc.web.views.small import identicon, loop_badge, sparkline
from streamproc.web.views.tree import tree_section

ROWS_MAX: Final = 24
CALLS_MAX: Final = 4  # of a turn
TEXT: Final = (
    "The log has no texts, only their hashes. Equal squares are equal texts, after numbers, times and paths have been "
    "masked."
)

WIDTHS: Final = {"turns": "by turn", "time": "by time", "cost": "by cost"}
TYPES: Final = {"html": "text/html", "md": "text/markdown", "json": "application/json"}
TITLE_MAX: Final = 60


def fingerprints(history: RunHistory, turns: Iterable[int]) -> Html:
    """Return what these turns called, said and got, as squares; without any, of the last turns."""
    chosen = sorted(set(turns))[-ROWS_MAX:] or list(range(max(0, history.turns - ROWS_MAX), history.turns))
    rows = []
    for index in chosen:
        detail = history.details.get(index)
        if detail is not None:
            rows += [TableRow(cells) for cells in _rows(index, detail.turn)]
    if not rows:
        return NOTHING
    heads = ["Turn", "Node", "What", "Call", "Answer", "Text"]
    return section("Fingerprints", muted(TEXT), table(heads, rows, class_="prints"))


def _rows(index: int, turn: Turn) -> Iterable[list[Any]]:
    text = turn.output or turn.structured or turn.query
    left = turn.artifact or turn.docs
    if not turn.calls:
        what = "said" if text else "left" if left else "tests" if turn.tests else "—"
        shown = _content(text or left)
        if not text and not left and turn.tests is not None and turn.tests.failing_set:
            shown = identicon(turn.tests.failing_set)
        yield [number(index), foreign(turn.node), what, NOTHING, NOTHING, shown]
        return
    for place, call in enumerate(turn.calls[:CALLS_MAX]):
        head = [number(index), foreign(turn.node)] if not place else [NOTHING, NOTHING]
        yield [*head, foreign(call.name, code=True), *_call(call), NOTHING if place else _content(text or left)]


def _call(call: Call) -> tuple[Html, Html]:
    answer = identicon(call.norm or call.exact) if call.norm or call.exact else tag("span", "none", class_="muted")
    return identicon(call.key), answer


def _content(content: Content | None) -> Html:
    return identicon(content.norm or content.exact) if content is not None else NOTHING


async def run(request: web.Request) -> web.Response:
    """Serve a run. `decision` chooses what the evidence is about, `width` how the timeline is drawn."""
    run_id, seen = run_of(request), request.app[LIVE].version
    live = request.app[MODEL].run(run_id)
    if live is None:
        return _unknown(request, run_id)
    recording = await request.app[RUN_LOG].read(live)
    history = recording.histories.get(run_id)
    about, width = field_of(request, "decision"), field_of(request, "width")
    body = [
        now_line(live),
        _downloads(run_id, trace_address(request.app[SETTINGS].trace_url, live.trace_id)),
        _commands(request, live),
        tree_section(request, live),
    ]
    if history is None or not history.turns:
        body.insert(0, _plain_head(live))
    else:
        report = ReportBuilder(recording, request.app[SETTINGS].policy).run(history, about=about)
        body.insert(0, tag("div", heading(report), class_="run-head", data_live=True, id="run-head"))
        body.append(_sections(report, history, run_id, about, width if width in WIDTHS else "turns"))
    state = "HALTED" if live.status == "halted" else live.status
    title, events = f"{state}: {run_id[:TITLE_MAX]}", f"view=run&{urlencode({'run': run_id}, errors='replace')}"
    return page(title, Html().join(body), request, events=events, seen=seen)


def _unknown(request: web.Request, run_id: str) -> web.Response:
    caught_up = request.app[MODEL].counts(time.time_ns() // 1_000_000).caught_up
    text = "No worker has published a status of it in the time that this page knows." if caught_up else (
        "The topics are still being read: try again in a moment."
    )  # fmt: skip
    known = Html().join(["There is no run ", foreign(run_id, code=True), ". ", text, " "])
    return missing(request, "No such run", known, tag("a", "All runs", href="/"))


def _plain_head(live: LiveRun) -> Html:
    why = "The turns topic holds no turn of it any more, so there is no timeline."
    name = tag("div", foreign(live.run_id, class_="mono"), class_="eyebrow")
    title = tag("h1", foreign(live.message) if live.message else "Nothing to report")
    return tag("div", name, title, tag("p", why, class_="lead"), class_="run-head", data_live=True, id="run-head")


def now_line(live: LiveRun) -> Html:
    """Return how the run stands now, by its latest status."""
    facts = [
        run_state(live),
        tag("span", tag("b", grouped(live.turns)), " turns"),
        tag("span", tag("b", money(live.cost_usd_micro)), " spent") if live.cost_usd_micro else NOTHING,
        tag("span", tag("b", grouped(live.total_tokens)), " tokens") if live.total_tokens else NOTHING,
        tag("span", "last sign of life ", moment(live.at_ms, ago=True)),
        tag("span", "last call ", foreign(live.doing, code=True)) if live.doing else NOTHING,
        loop_badge(live.badge),
        sparkline(live.failing_trend),
    ]
    if live.capped_budgets:
        names = ", ".join(live.capped_budgets)
        facts.append(tag("span", "It asked for more than its policy allows: ", foreign(names)))
    return tag("div", *facts, class_="live-facts", data_live=True, id="run-now")


def _downloads(run_id: str, trace: str) -> Html:
    links = [tag("a", name, href=run_href(run_id, f"report.{kind}"), download=True)
             for kind, name in (("html", "Download the report"), ("md", "Markdown"), ("json", "JSON"))]  # fmt: skip
    keys = tag(
        "span", tag("kbd", "j"), " ", tag("kbd", "k"), " flags, ", tag("kbd", "."), " next repeat", class_="keys"
    )
    decisions = tag("a", "Its decisions", href=f"/decisions?{urlencode({'run_id': run_id}, errors='replace')}")
    traced = tag("a", "Its trace", href=trace, rel="noreferrer") if trace else NOTHING
    return tag("div", *links, decisions, traced, keys, class_="actions")


def _commands(request: web.Request, live: LiveRun) -> Html:
    """Return the forms that finish the job, for those who may; else what they need."""
    session, commands = session_of(request), request.app[COMMANDS]
    verbs = [verb for verb in SELECTED if RULES[verb].needs == live.status]
    forms = command_form(session, f"run:{live.run_id}", verbs, commands=commands, back=run_href(live.run_id))
    why = "" if forms or not verbs else why_not(commands, verbs[0])
    if not forms and not why:
        return NOTHING
    body = forms or tag("p", why, class_="muted")
    return tag(
        "section", tag("h2", "Act"), body, class_="commands", id="commands", data_live=True, data_state=live.status
    )


def _sections(report: RunReport, history: RunHistory, run_id: str, about: str, width: str) -> Html:
    def link(one: Decision) -> str:
        query = {"decision": one.id} | ({"width": width} if width != "turns" else {})
        return f"{run_href(run_id, **query)}#evidence"

    form = TimelineForm(widths_of(report, history, width), link, history.open_nodes)
    prints = NOTHING if report.content else fingerprints(history, [one.turn for one in report.occurrences])
    parts = LiveParts(form, _switch(run_id, about, width), prints, about)
    anchor = tag("span", id="evidence")
    return tag("div", anchor, *run_sections(report, live=parts), class_="regions", data_live=True, id="run-body")


def widths_of(report: RunReport, history: RunHistory, width: str) -> list[float] | None:
    """Return how wide each stretch of the timeline is, by time or cost; None: all alike, or nothing is known."""
    of: Callable[[int, int], int] | None = {
        "time": lambda first, end: history.at[end - 1] - history.at[max(0, first - 1)],
        "cost": lambda first, end: sum(history.cost[first:end]),
    }.get(width)
    if of is None:
        return None
    firsts = [one.first for one in report.stretches] + [history.turns]
    found = [float(max(0, of(first, end))) for first, end in pairwise(firsts)]
    return found if any(found) else None


def _switch(run_id: str, about: str, width: str) -> Html:
    more = {"decision": about} if about else {}
    links = [
        tag("a", words, href=f"{run_href(run_id, width=name, **more)}#run-body",
            aria_current="true" if name == width else None)
        for name, words in WIDTHS.items()
    ]  # fmt: skip
    return tag("div", *links, class_="switch", role="group", aria_label="width of the timeline")


async def download(request: web.Request) -> web.Response:
    """Serve the report of a run as a file."""
    run_id, kind = run_of(request), request.match_info["file"].partition(".")[2]
    live = request.app[MODEL].run(run_id)
    recording = await request.app[RUN_LOG].read(live) if live is not None else None
    if recording is None or run_id not in recording.histories:
        return _unknown(request, run_id)
    text = report_text(recording, run_id, request.app[SETTINGS].policy, format_=kind)
    safe = "".join(one if one.isascii() and one.isalnum() else "-" for one in run_id)[:TITLE_MAX]
    return web.Response(
        body=text.encode("utf-8", "replace"),
        content_type=TYPES[kind],
        charset="utf-8",
        headers={"Content-Disposition": f'attachment; filename="{safe}.{kind}"'},
    )
