"""The tree of a session on the page of a run: who started whom, who is at work, what each branch costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from aiohttp import web

from streamproc.core.scope import short_name
from streamproc.model.formats import grouped, money
from streamproc.read_model.rows import LiveRun
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import TableRow, muted, number, section, table
from streamproc.web.access import session_of
from streamproc.web.keys import COMMANDS, MODEL
from streamproc.web.views.run_rows import run_link, run_state

RUNS_MAX: Final = 200  # of a session that are shown
DEPTH_MAX: Final = 16  # levels that are indented


class Branch(NamedTuple):
    """A run in its tree: how deep it is, and what it and all runs below it cost."""

    run: LiveRun
    depth: int
    runs: int
    cost_usd_micro: int


def branches(runs: Iterable[LiveRun]) -> Iterator[Branch]:
    """Yield the runs of a session, each after the one that has started it; those whose parent is not known first."""
    known = {run.run_id: run for run in runs}
    children: dict[str, list[LiveRun]] = {}
    for run in known.values():
        above = run.parent if run.parent in known and run.parent != run.run_id else ""
        children.setdefault(above, []).append(run)
    sums: dict[str, tuple[int, int]] = {}
    ordered: list[tuple[LiveRun, int]] = []
    waiting = [(run, 0) for run in reversed(children.get("", []))]
    while waiting:  # runs that name each other as parents are in no branch
        run, depth = waiting.pop()
        ordered.append((run, depth))
        waiting += [(one, depth + 1) for one in reversed(children.get(run.run_id, []))]
    for run, _ in reversed(ordered):
        below = [sums[one.run_id] for one in children.get(run.run_id, [])]
        sums[run.run_id] = 1 + sum(one[0] for one in below), run.cost_usd_micro + sum(one[1] for one in below)
    for run, depth in ordered:
        yield Branch(run, depth, *sums[run.run_id])


def tree_section(request: web.Request, live: LiveRun) -> Html:
    """Return the tree of a run's session; nothing for a run that is alone in it."""
    session = live.session or short_name(live.run_id)
    runs = request.app[MODEL].session_runs(session, RUNS_MAX)
    if len(runs) < 2:
        return NOTHING
    rows = [_row(one, live.run_id) for one in branches(runs)]
    heads = ["Run", "State", "Turns", "Cost", "Branch", "Why"]
    alive = sum(run.status == "running" for run in runs)
    more = f"{RUNS_MAX} of its runs are shown." if len(runs) == RUNS_MAX else f"{len(runs)} runs, {alive} at work."
    body = [muted("Session ", foreign(session, code=True), f": {more}"), table(heads, rows, class_="tree")]
    return section("The tree of its session", *body, _stop(request, session), id_="tree")


def _row(one: Branch, shown: str) -> TableRow:
    run = one.run
    indent = "\N{NO-BREAK SPACE}" * 4 * min(one.depth, DEPTH_MAX)
    name = tag("strong", foreign(run.run_id, code=True)) if run.run_id == shown else run_link(run.run_id)
    branch = f"{grouped(one.runs)} runs, {money(one.cost_usd_micro)}" if one.runs > 1 else ""
    why = foreign(f"{run.code} {run.message}") if run.code else NOTHING
    cells = [tag("span", indent, name), run_state(run), number(run.turns), money(run.cost_usd_micro), branch, why]
    return TableRow(cells)


def _stop(request: web.Request, session: str) -> Html:
    if session_of(request) is None or not request.app[COMMANDS].allows(session_of(request), "kill"):
        return NOTHING
    return tag(
        "form", tag("input", type="hidden", name="verb", value="kill"),
        tag("input", type="hidden", name="session", value=session), tag("button", "Halt all runs of this session…"),
        method="get", action="/commands/new", class_="command", data_verb="kill",
    )  # fmt: skip
