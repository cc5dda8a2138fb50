"""A report as Markdown, for a ticket or a chat: the same facts as the HTML, without drawings.

Text of others stands in code spans, where no mark has a meaning, or with every mark escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from streamproc.errors import plural
from streamproc.model.escaping import escape, inert
from streamproc.model.formats import clock, grouped, short, usd
from streamproc.report.facts import listed_gaps
from streamproc.report.model import FleetReport, Report, RunReport, TurnShown
from streamproc.report.run_sections import STATES
from streamproc.report.run_tables import TREE_HEADS, TREE_TITLE, branch_cost, indent
from streamproc.report.words import KIND_WORDS, MATCH_WORDS, amount, percent, spent

_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")
_TICKS: Final = re.compile("`+")
TURNS_LISTED: Final = 60  # turns of a run in Markdown: a ticket is read, not searched


def prose(text: Any) -> str:
    """Return a text of others in which no character has a meaning in Markdown or HTML."""
    return _MARKS.sub(r"\\\1", inert(str(text)))


def code(text: Any) -> str:
    """Return a text of others as a code span that also fits into a table."""
    shown = escape(str(text)).strip()
    if not shown:
        return ""
    fence = "`" * (max((len(run) for run in _TICKS.findall(shown)), default=0) + 1)
    pad = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    listed = [[str(cell) for cell in row] for row in rows]
    if not listed:
        return
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in listed:
        yield f"| {' | '.join(row)} |"
    yield ""


def markdown_of(report: Report, dated: str = "") -> str:
    """Return a report as Markdown."""
    lines = list(_fleet(report) if isinstance(report, FleetReport) else _run(report, "#"))
    policy = report.policy
    lines.append(
        f"streamproc {prose(report.version)}; policy {code(policy.name)}, version {code(policy.version)}, "
        f"hash {code(policy.hash)}. Times are those of the log, in UTC." + (f" Made at {dated}." if dated else "")
    )
    return "\n".join(lines) + "\n"


def _fleet(report: FleetReport) -> Iterator[str]:
    yield f"# {prose(report.sentence)}"
    yield ""
    yield (
        f"{plural(report.runs_total, 'run')}: {report.halted} halted, {report.warned} warned. In all: "
        f"{spent(report.total)}."
    )
    yield ""
    rows = [
        (f"{code(one.run_id)} {prose(one.name)}".rstrip(), one.state, prose(one.sentence), one.code, grouped(one.turns),
         grouped(one.after_onset.turns), short(one.after_onset.tokens) if one.after_onset.tokens else "",
         usd(one.after_onset.cost_usd_micro) if one.after_onset.cost_usd_micro else "")
        for one in report.runs if one.state != "unremarkable"
    ]  # fmt: skip
    yield from _table(["Run", "State", "What happened", "Code", "Turns", "Wasted turns", "Wasted tokens",
                       "Wasted USD"], rows)  # fmt: skip
    tallies = [(one.code, one.name, one.runs_halted, one.runs_warned, one.decisions) for one in report.detectors]
    yield from _table(["Code", "Detector", "Runs halted", "Runs warned", "Decisions"], tallies)
    for one in report.reports:
        yield from _run(one, "##")


def _run(report: RunReport, level: str) -> Iterator[str]:
    yield f"{level} {STATES[report.state]}: {code(report.run_id)}{f' ({prose(report.name)})' if report.name else ''}"
    yield ""
    yield prose(report.sentence)
    yield ""
    yield from _facts(report)
    for note in report.notes:
        yield f"> {prose(note)}"
        yield ""
    if report.occurrences:
        yield f"{level}# What repeated"
        yield ""
        rows = [
            (one.turn, code(one.node), code(f"{one.what} {one.args}"), code(one.answer), MATCH_WORDS[one.match])
            for one in report.occurrences
        ]
        yield from _table(["Turn", "Node", "What it did", "What came back", "Compared with the one before"], rows)
        if report.occurrences_left_out:
            yield f"… {plural(report.occurrences_left_out, 'occurrence')} left out"
            yield ""
    if report.todo:
        yield f"{level}# What to do"
        yield ""
        yield from (f"{number}. {one.text}" for number, one in enumerate(report.todo, 1))
        yield ""
    yield from _details(report, level)


def _facts(report: RunReport) -> Iterator[str]:
    moments = (("First warning", report.warned), ("The loop began", report.began), ("Halted", report.halted))
    for name, moment in moments:
        if moment is not None:
            more = ", ".join(text for text in (clock(moment.at), moment.place) if text)
            yield f"- {name}: turn {moment.turn} of {report.turns_total}" + (f" ({more})" if more else "")
    if report.code:
        yield f"- By: {report.code} {prose(report.detector)}, decision {code(report.decision_id)}"
        if report.resumed:
            yield f"- Resumed {prose(report.resumed)}"
        elif report.terminal_status:
            yield f"- Ends as: {code(report.terminal_status)}, stop reason {code(report.stop_reason)}"
        yield f"- Before: {spent(report.before)}; until the decision: {spent(report.during)}"
        if report.after.turns:
            yield f"- Afterwards, as recorded: {spent(report.after)}"
    if report.estimate is not None:
        yield (
            f"- Estimate, the rest of {report.estimate.budget}: {spent(report.estimate.spend)} "
            f"({prose(report.estimate.basis)})"
        )
    if report.first_error is not None:
        yield f"- First error, turn {report.first_error.turn}: {code(report.first_error.text)}"
    yield ""


def _details(report: RunReport, level: str) -> Iterator[str]:
    if report.ring is not None:
        nodes = " → ".join(code(node) for node in report.ring.nodes)
        yield f"The cycle: {nodes}, {plural(report.ring.iterations, 'iteration')}."
        yield ""
    if len(report.trend) > 1:
        shown = " → ".join(str(one.failing) for one in report.trend[-12:])
        yield f"Failing tests: {shown}; the fewest so far: {report.trend[-1].best}."
        yield ""
    if report.budgets:
        rows = [(one.name, amount(one.used, one.unit), amount(one.limit, one.unit), percent(one.used, one.limit))
                for one in report.budgets]  # fmt: skip
        yield from _table(["Budget", "Used", "Limit", "Share"], rows)
    if report.events:
        yield f"{level}# Besides turns"
        yield ""
        yield from _table(["At turn", "What happened"], ((one.turn, code(one.what)) for one in report.events))
    if report.turns:
        yield f"{level}# Turns"
        yield ""
        yield from _table(["Turn", "Node", "Kind", "What it did"], _turns(report))
    yield from _tree(report, level)
    if report.reproduce:
        yield f"{level}# How to see it again"
        yield ""
        yield from (f"    {escape(one)}" for one in report.reproduce)
        yield ""
    if report.log:
        yield f"In the log: {code(report.log)}."
        yield ""


def _tree(report: RunReport, level: str) -> Iterator[str]:
    if not report.tree:
        return
    yield f"{level}# {TREE_TITLE}"
    yield ""
    rows = [
        (f"{indent(one.depth)}{code(one.run_id)}", one.state, grouped(one.turns), usd(one.cost_usd_micro),
         branch_cost(one.runs, one.branch_cost_usd_micro), prose(one.why))
        for one in report.tree
    ]  # fmt: skip
    yield from _table(TREE_HEADS, rows)
    if report.tree_left_out:
        yield f"… {plural(report.tree_left_out, 'run')} left out"
        yield ""


def _turns(report: RunReport) -> Iterator[Sequence[Any]]:
    decided = report.halted or report.warned
    middle = decided.turn if decided is not None else report.turns_total - 1
    nearest = sorted(report.turns, key=lambda one: abs(one.turn - middle))[:TURNS_LISTED]
    shown = sorted(nearest, key=lambda one: one.turn)
    gaps = dict(listed_gaps([one.turn for one in shown], report.turns_total))
    for one in shown:
        if gap := gaps.get(one.turn):
            yield "", "", "", f"… {plural(gap, 'turn')} left out"
        yield one.turn, code(one.node), KIND_WORDS[one.kind], _did(one)
    if gap := gaps.get(report.turns_total):
        yield "", "", "", f"… {plural(gap, 'turn')} left out"


def _did(one: TurnShown) -> str:
    parts = [code(one.said)] if one.said else []
    if one.left:
        parts.append(f"left {code(one.left)}")
    if one.failing is not None:
        parts.append(plural(one.failing, "failing test"))
    parts += [
        f"{code(f'{call.tool} {call.args}')} → {code(call.answer)}" if call.answer else code(f"{call.tool} {call.args}")
        for call in one.calls
    ]
    if one.error and not one.calls:
        parts.append(f"error: {code(one.error)}")
    return "; ".join(parts)
