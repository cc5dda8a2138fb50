"""The tree of a session on the page of a run: who started whom, who is at work, what each branch costs."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from streamproc.core.scope import short_name
from streamproc.model.formats import money
from streamproc.read_model.rows import LiveRun
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.run_tables import TREE_HEADS, TREE_TITLE, branch_cost, indent
from streamproc.report.tables import TableRow, muted, number, section, table
from streamproc.report.tree import Branch, branches
from streamproc.web.access import session_of
from streamproc.web.keys import COMMANDS, MODEL
from streamproc.web.views.run_rows import run_link, run_state

RUNS_MAX: Final = 200  # of a session that are shown


def tree_section(request: web.Request, live: LiveRun) -> Html:
    """Return the tree of a run's session; nothing for a run that is alone in it."""
    session = live.session or short_name(live.run_id)
    runs = request.app[MODEL].session_runs(session, RUNS_MAX)
    if len(runs) < 2:
        return NOTHING
    rows = [_row(one, live.run_id) for one in branches(runs)]
    alive = sum(run.status == "running" for run in runs)
    more = f"{RUNS_MAX} of its runs are shown." if len(runs) == RUNS_MAX else f"{len(runs)} runs, {alive} at work."
    body = [muted("Session ", foreign(session, code=True), f": {more}"), table(TREE_HEADS, rows, class_="tree")]
    return section(TREE_TITLE, *body, _stop(request, session), id_="tree")


def _row(one: Branch[LiveRun], shown: str) -> TableRow:
    run = one.run
    name = tag("strong", foreign(run.run_id, code=True)) if run.run_id == shown else run_link(run.run_id)
    branch = branch_cost(one.runs, one.cost_usd_micro)
    why = foreign(f"{run.code} {run.message}") if run.code else NOTHING
    cells = [
        tag("span", indent(one.depth), name),
        run_state(run),
        number(run.turns),
        money(run.cost_usd_micro),
        branch,
        why,
    ]
    return TableRow(cells)


def _stop(request: web.Request, session: str) -> Html:
    if session_of(request) is None or not request.app[COMMANDS].allows(session_of(request), "kill"):
        return NOTHING
    return tag(
        "form", tag("input", type="hidden", name="verb", value="kill"),
        tag("input", type="hidden", name="session", value=session), tag("button", "Halt all runs of this session…"),
        method="get", action="/commands/new", class_="command", data_verb="kill",
    )  # fmt: skip
