"""The tables at the end of one run's report: decisions, turns, other detectors, policy, commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from streamproc.core.decision import Decision
from streamproc.errors import plural
from streamproc.model.formats import grouped, money
from streamproc.report import drawings
from streamproc.report.facts import listed_gaps
from streamproc.report.markup import NOTHING, Html, foreign, moment, tag
from streamproc.report.model import RunReport, TurnShown
from streamproc.report.tables import Cell, TableRow, filter_bar, folded, muted, number, section, table
from streamproc.report.words import KIND_WORDS

TREE_TITLE: Final = "The tree of its session"
TREE_HEADS: Final = ("Run", "State", "Turns", "Cost", "Branch", "Why")
DEPTH_MAX: Final = 16  # levels of a tree that are indented
LONG_TABLE: Final = 24  # rows from which a table has a filter


def where_cell(node: str, at: int, place: str) -> Cell:
    """Return the cell that says which node, when, and where in the log."""
    small = Html(", ").join(part for part in (moment(at, "of-day"), place) if part)
    return Cell(Html().join([foreign(node), " ", tag("small", small) if small else NOTHING]), "where")


def called(tool: str, args: str) -> Html:
    """Return a call with its arguments."""
    return tag(
        "span", foreign(tool or "a tool", code=True), " ", foreign(args, code=True) if args else "", class_="call"
    )


def tree(report: RunReport) -> Html:
    """Return the tree of the run's session, with the cost of each branch."""
    rows = [
        TableRow([
            tag("span", indent(one.depth), tag("strong" if one.run_id == report.run_id else "span",
                                               foreign(one.run_id, code=True))),
            one.state, number(grouped(one.turns)), number(money(one.cost_usd_micro)),
            branch_cost(one.runs, one.branch_cost_usd_micro), Cell(foreign(one.why), "wide"),
        ])
        for one in report.tree
    ]  # fmt: skip
    if not rows:
        return NOTHING
    left_out = muted(f"… {plural(report.tree_left_out, 'run')} left out") if report.tree_left_out else NOTHING
    return section(TREE_TITLE, table(TREE_HEADS, rows, class_="tree"), left_out)


def indent(depth: int) -> str:
    """Return what stands before the name of a run in a tree."""
    return "\N{NO-BREAK SPACE}" * 4 * min(depth, DEPTH_MAX)


def branch_cost(runs: int, cost_usd_micro: int) -> str:
    """Return how many runs a branch has, and their cost; nothing for a run without children."""
    return f"{grouped(runs)} runs, {money(cost_usd_micro)}" if runs > 1 else ""


def decisions(report: RunReport, link: Callable[[Decision], str] | None = None, chosen: str = "") -> Html:
    """Return the decisions on the run, each with a link if they have addresses, and `chosen` marked."""
    rows = []
    for one in report.decisions:
        turn = one.turn if one.turn is not None else "—"
        severity = tag("span", one.severity, class_=f"sev-{one.severity}")
        code = _code(one.code) if link is None else Cell(tag("a", tag("code", one.code), href=link(one)), "tight")
        rows.append(TableRow([number(turn), severity, code, Cell(foreign(one.message), "wide"),
                              foreign(one.node or "")], "chosen" if chosen == one.id else None))  # fmt: skip
    more = (
        muted(f"… {plural(report.decisions_left_out, 'decision')} left out") if report.decisions_left_out else NOTHING
    )
    if not rows:
        return NOTHING
    return section("Decisions", table(["Turn", "Severity", "Code", "What it says", "Node"], rows), more)


def _code(code: str) -> Cell:
    return Cell(tag("code", code), "tight")


def turns(report: RunReport, prefix: str) -> Html:
    """Return the turns, with a filter."""
    if not report.turns:
        return NOTHING
    gaps = dict(listed_gaps([one.turn for one in report.turns], report.turns_total))
    first = report.began.turn if report.began else -1
    decided = report.halted or report.warned
    last = decided.turn if decided and first >= 0 else -2
    columns = any(one.tokens for one in report.turns), any(one.cost_usd_micro for one in report.turns)
    rows: list[TableRow] = []
    for one in report.turns:
        if gap := gaps.get(one.turn):
            rows.append(_gap(gap, 4 + sum(columns)))
        inside = first <= one.turn <= last
        rows.append(TableRow(list(_turn(one, *columns)), "in-loop" if inside else None, inside))
    if gap := gaps.get(report.turns_total):
        rows.append(_gap(gap, 4 + sum(columns)))
    heads = ["Turn", "Node", "Kind", "What it did"]
    heads += [name for name, known in zip(("Tokens", "Cost"), columns, strict=True) if known]
    bar = (
        filter_bar("Filter turns", "only the loop" if last >= 0 else "") if len(report.turns) > LONG_TABLE else NOTHING
    )
    title = "All turns" if not gaps else f"Turns: {len(report.turns)} of {grouped(report.turns_total)}"
    return folded(title, bar, table(heads, rows, class_="turns"), id_=f"{prefix}turns")


def _gap(turns: int, columns: int) -> TableRow:
    return TableRow([Cell(f"… {grouped(turns)} {'turn' if turns == 1 else 'turns'} left out", span=columns)], "gap")


def _turn(one: TurnShown, tokens: bool, cost: bool) -> Iterator[Any]:
    yield number(one.turn)
    yield where_cell(one.node, one.at, one.place)
    yield tag("span", drawings.key_mark(one.kind), KIND_WORDS[one.kind], class_="kind")
    parts: list[Html] = [tag("span", foreign(one.said), class_="said call")] if one.said else []
    if one.left:
        parts.append(tag("span", tag("span", "left: ", class_="muted"), foreign(one.left), class_="call"))
    if one.failing is not None:
        parts.append(tag("span", plural(one.failing, "failing test"), class_="call"))
    for call in one.calls:
        answer = foreign(call.answer, class_="answer") if call.answer else NOTHING
        failed = tag("span", "failed: ", class_="failed") if call.outcome == "failed" else NOTHING
        parts.append(tag("span", called(call.tool, call.args), "→ " if call.answer else NOTHING, failed, answer,
                         class_="call"))  # fmt: skip
    if one.calls_left_out:
        parts.append(
            tag("span", plural(one.calls_left_out, "call" if not one.calls else "more call"), class_="call muted")
        )
    if one.error and not any(call.outcome == "failed" for call in one.calls):
        parts.append(tag("span", tag("span", "error: ", class_="failed"), foreign(one.error), class_="call"))
    yield Cell(Html().join(parts), "wide")
    if tokens:
        yield number(grouped(one.tokens) if one.tokens else "")
    if cost:
        yield number(money(one.cost_usd_micro) if one.cost_usd_micro else "")


def others(report: RunReport) -> Html:
    """Return the detectors that reported nothing."""
    rows = [TableRow([_code(one.code), one.name.replace("_", " "), number(grouped(one.events))])
            for one in report.others]  # fmt: skip
    if not rows:
        return NOTHING
    text = (
        "These detectors were asked about events with evidence of their kind, and found no reason to report anything. "
        "How close each of them came to its limit is not recorded; budgets are above."
    )
    return folded("What the other detectors saw", muted(text),
                  table(["Code", "Detector", "Events with such evidence"], rows))  # fmt: skip


def policy(report: RunReport) -> Html:
    """Return the policy's values that counted."""
    rows = [
        TableRow([tag("code", one.name), Cell(tag("code", one.value)),
                  foreign(one.place) if one.place else tag("span", "default", class_="muted")])
        for one in report.policy_values
    ]  # fmt: skip
    if not rows:
        return NOTHING
    policy = report.policy
    text = f"Policy {policy.name}, version {policy.version}: the values in force for this run, and where each is set."
    return folded("The policy's values that counted", muted(text), table(["Setting", "Value", "Set in"], rows))


def reproduce(report: RunReport) -> Html:
    """Return the commands that show the same again, and the place in the log."""
    commands = [tag("pre", one) for one in report.reproduce]
    facts = []
    if report.log:
        facts.append(tag("p", "In the log: ", foreign(report.log), ".", class_="muted"))
    if report.decision_id:
        facts.append(tag("p", "Decision ", tag("code", report.decision_id),
                         ". The same log and policy give the same id.", class_="muted"))  # fmt: skip
    return section("How to see it again", *commands, *facts)
