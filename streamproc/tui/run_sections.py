"""What the screen of a run shows, section by section: from the read model, and from the replay of its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from textual.content import Content

from streamproc.errors import plural
from streamproc.model.advice import ADVICE
from streamproc.model.formats import age, clock, duration, grouped, money, time_of_day
from streamproc.read_model.command_progress import body_of
from streamproc.read_model.rows import AccountRow, DecisionRow, LiveRun
from streamproc.report.facts import listed_gaps
from streamproc.report.model import Occurrence, RunReport, TurnShown
from streamproc.report.words import KIND_WORDS, MATCH_WORDS, amount
from streamproc.tui.folded_lines import HangingLine, HangingLines
from streamproc.tui.texts import (
    SEVERITY_STYLES,
    STATE_STYLES,
    bar,
    joined,
    lines,
    scope_of_run,
    sparkline,
    state_of,
    styled,
    trend_style,
)

BAR: Final = 20  # columns of a budget's bar
TREND_LONG: Final = 40
DECISIONS_SHOWN: Final = 30
INDENT: Final = 4
TURN_HANG: Final = 21  # columns before the node of a turn: its mark, number, time and kind
LOOP_MARK: Final = "▌"
KIND_MARKS: Final = {
    "new": ("●", "$good"), "repeat": ("↻", "$caution"), "narration": ("○", "$quiet"), "error": ("✗", "$bad"),
    "waiting": ("…", "$quiet"), "other": ("·", "$quiet"),
}  # fmt: skip


def head(run: LiveRun, now_ms: int) -> Content:
    """Return the state, the whole id, and the scope of a run."""
    state = state_of(run)
    title = joined(Content.styled(f" {state.upper()} ", STATE_STYLES[state]), "  ", styled(run.run_id, "bold"))
    facts = [f"{grouped(run.turns)} {'turn' if run.turns == 1 else 'turns'}"]
    facts += [f"{grouped(run.total_tokens)} tokens"] if run.total_tokens else []
    facts += [money(run.cost_usd_micro)] if run.cost_usd_micro else []
    facts += [f"halted {age(run.halted_at_ms, now_ms)} ago"] if run.halted_at_ms else []
    facts += [f"last sign of life {age(run.at_ms, now_ms)} ago, {clock(run.at_ms)} UTC"] if run.at_ms else []
    found = [title, Content("  ").join(scope_of_run(run)), Content(", ".join(facts))]
    if run.partition >= 0:
        found.append(Content.styled(f"log: partition {run.partition}, offset {run.offset}", "$quiet"))
    return lines([line for line in found if line.plain])


def why(run: LiveRun, decisions: Sequence[DecisionRow]) -> HangingLines:
    """Return the decision in force in words, and what to do about it."""
    if not run.message:
        return remark("No detector has anything to report.")
    style = SEVERITY_STYLES.get(run.severity, "")
    badge = joined("   ", styled(run.badge, "bold $caution")) if run.badge else Content("")
    found = [HangingLine(joined(styled(run.code, f"bold {style}"), badge)), HangingLine(styled(run.message))]
    main = next((one for one in decisions if (one.code, one.severity) == (run.code, run.severity)), None)
    found += [HangingLine(joined("→ ", text), 2) for text in todo(body_of(main))] if main is not None else []
    return HangingLines(found)


def remark(text: str, style: str = "$quiet") -> HangingLines:
    """Return a remark in the place of a section."""
    return HangingLines([HangingLine(styled(text, style))])


def todo(body: dict[str, Any]) -> Iterator[Content]:
    """Yield what to do about a decision, the action of the policy first."""
    suggested = body.get("suggested_actions") or []
    for action in dict.fromkeys([body.get("action"), *(suggested if isinstance(suggested, list) else [])]):
        if isinstance(action, str) and action:
            text = ADVICE.get(action, action)
            yield styled(text[:1].upper() + text[1:])


def budgets(run: LiveRun, report: RunReport | None, accounts: Sequence[AccountRow]) -> Content:
    """Return the budgets of a run, and the shared ones that it spends from, as bars."""
    found: list[Content] = []
    for use in report.budgets if report is not None else ():
        used = amount(use.used, use.unit).removesuffix(f" {use.unit}")
        text = f"{used} of {amount(use.limit, use.unit)}"
        capped = "  capped by the policy" if use.name in run.capped_budgets else ""
        found.append(joined(f"{use.name:<18} ", bar(use.used, use.limit, BAR), f"  {text}{capped}"))
    for row in accounts:
        if row.scope in (f"user:{run.user}", f"tenant:{run.tenant}") and row.limit:
            name = joined(styled(row.scope), f" {row.budget}")
            text = f"{row.spent:g} of {row.limit:g} {row.unit}"
            found.append(joined(name.pad_right(max(0, 18 - name.cell_length)), " ", bar(row.spent, row.limit, BAR),
                                f"  {text}"))  # fmt: skip
    return lines(found) if found else Content.styled("No budget is known.", "$quiet")


def trend(run: LiveRun, report: RunReport | None) -> Content:
    """Return the badge, and how the number of failing tests has gone."""
    values = tuple(point.failing for point in report.trend) if report is not None else ()
    values = values or run.failing_trend
    found = []
    if report is not None and report.ring is not None:
        ring = report.ring
        nodes = Content(" → ").join([styled(name) for name in (*ring.nodes, *ring.nodes[:1])])
        found.append(joined(nodes, f"  {plural(ring.iterations, 'iteration')}"))
    if values:
        drawn = Content.styled(sparkline(values, TREND_LONG), trend_style(values))
        found.append(joined("failing tests  ", drawn, f"  {values[0]} → {values[-1]}, fewest {min(values)}"))
    return lines(found) if found else Content.styled("No test results.", "$quiet")


def decided(rows: Sequence[DecisionRow]) -> Content:
    """Return the decisions on a run, the newest first, each with its evidence."""
    found: list[Content] = []
    for row in sorted(rows, key=lambda one: (-one.at_ms, -(one.turn or 0)))[:DECISIONS_SHOWN]:
        place = f"turn {row.turn}" if row.turn is not None else ""
        severity = Content.styled(f"{row.severity:<4}", f"bold {SEVERITY_STYLES.get(row.severity, '')}")
        found.append(joined(f"{time_of_day(row.at_ms):<8}  ", severity, "  ", styled(row.code, "bold"), f"  {place}"))
        found.append(styled(row.message))
        facts = evidence(body_of(row))
        found += [facts, Content("")] if facts.plain else [Content("")]
    if len(rows) > DECISIONS_SHOWN:
        found.append(Content.styled(f"… {plural(len(rows) - DECISIONS_SHOWN, 'older decision')}", "$quiet"))
    while found and not found[-1].plain:
        found.pop()
    return lines(found) if found else Content.styled("No decision.", "$quiet")


EVIDENCE: Final = {
    "count": "occurrences", "turns": "turns", "tool": "tool", "args_excerpt": "arguments", "match": "match",
    "iteration": "iteration", "edge": "edge", "failing_trend": "failing tests", "first_error": "first error",
    "used": "used", "limit": "limit", "unit": "unit", "limit_from": "limit from", "by": "by", "reason": "reason",
    "grant": "grant",
}  # fmt: skip
"""The facts of a decision that people read, in this order; the others are in the raw decision (`d`)."""


def evidence(body: dict[str, Any]) -> Content:
    """Return the facts that a decision is based on."""
    facts = body.get("evidence")
    if not isinstance(facts, dict):
        return Content("")
    parts = [
        joined(Content.styled(f"{word} ", "$quiet"), styled(_value(facts[name])))
        for name, word in EVIDENCE.items()
        if facts.get(name) not in (None, [], {}, "")
    ]
    return Content("  ").join(parts)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name} +{added}" for name, added in value.items())
    return str(value)


def repeats(report: RunReport) -> HangingLines:
    """Return what repeated, occurrence by occurrence, and the first error."""
    found: list[HangingLine] = []
    if report.occurrences_left_out:
        text = f"… {plural(report.occurrences_left_out, 'occurrence')} before"
        found.append(HangingLine(Content.styled(text, "$quiet")))
    for one in report.occurrences:
        found += _occurrence(one, report.period)
    if report.first_error is not None:
        error = report.first_error
        begin = Content.styled(f"first error, turn {error.turn}  ", "$bad")
        found.append(HangingLine(joined(begin, styled(error.text)), INDENT))
    if report.estimate is not None:
        spend = report.estimate.spend
        cost = f", {money(spend.cost_usd_micro)}" if spend.cost_usd_micro else ""
        text = f"estimate: the rest of {report.estimate.budget} would have been {plural(spend.turns, 'turn')}{cost}"
        found.append(HangingLine(Content.styled(text, "$quiet"), INDENT))
    return HangingLines(found)


def _occurrence(one: Occurrence, period: int) -> Iterator[HangingLine]:
    style = {"same": "$bad", "normalised": "$bad", "near": "$caution"}.get(one.match, "$quiet")
    step = f"  {one.round}.{one.step}" if period > 1 else ""
    parts = [
        joined(Content.styled(f"turn {one.turn:<4}", "bold"), step, "  ", styled(one.node), "  ", styled(one.what)),
        Content.styled(MATCH_WORDS[one.match], style),
    ]
    yield HangingLine(Content("  ").join(parts), INDENT)
    if one.args:
        yield HangingLine(joined(" " * INDENT, styled(one.args)), INDENT)
    if one.answer:
        yield HangingLine(joined(" " * INDENT, "→ ", styled(one.answer)), INDENT + 2)


def timeline(report: RunReport) -> HangingLines:
    """Return the turns, the latest first, with the gaps between them."""
    gaps = dict(listed_gaps([one.turn for one in report.turns], report.turns_total))
    first = report.began.turn if report.began else -1
    last_moment = report.halted or report.warned
    last = last_moment.turn if last_moment and first >= 0 else -2
    found: list[HangingLine] = []
    for one in report.turns:
        if gap := gaps.get(one.turn):
            found.append(HangingLine(Content.styled(f"      … {grouped(gap)} turns", "$quiet")))
        found.append(HangingLine(_turn(one, in_loop=first <= one.turn <= last), TURN_HANG))
    legend = [joined(Content.styled(mark, style), f" {KIND_WORDS[kind]}") for kind, (mark, style) in KIND_MARKS.items()]
    legend += [joined(Content.styled(LOOP_MARK, "$bad"), " in the loop")] if last >= first >= 0 else []
    notes = [HangingLine(Content.styled(note, "$quiet")) for note in report.notes]
    return HangingLines([HangingLine(Content("   ").join(legend)), HangingLine(Content("")), *reversed(found), *notes])


def _turn(one: TurnShown, *, in_loop: bool) -> Content:
    mark, style = KIND_MARKS[one.kind]
    edge = Content.styled(LOOP_MARK if in_loop else " ", "$bad")
    begin = joined(edge, f"{one.turn:>5}  {time_of_day(one.at):<8}  ", Content.styled(mark, style), "  ")
    parts = [styled(one.node, "bold")]
    for call in one.calls:
        answer = joined(" → ", styled(call.answer, "$quiet" if call.outcome != "failed" else "$bad"))
        parts.append(joined(styled(call.tool, "$accent"), " ", styled(call.args), answer if call.answer else ""))
    if one.calls_left_out:
        parts.append(Content(plural(one.calls_left_out, "call" if not one.calls else "more call")))
    parts += [styled(one.said)] if one.said else []
    parts += [Content(plural(one.failing, "failing test"))] if one.failing is not None else []
    parts += [styled(one.error, "$bad")] if one.error and not one.calls else []
    if one.tokens or one.cost_usd_micro:
        cost = money(one.cost_usd_micro) if one.cost_usd_micro else f"{grouped(one.tokens)} tokens"
        parts.append(Content.styled(cost, "$quiet"))
    return joined(begin, Content("  ").join(parts))


def spent(report: RunReport) -> Content:
    """Return what the run took before and after the onset of its loop."""
    rows = (("before the loop", report.before), ("in the loop", report.during), ("after the decision", report.after))
    found = []
    for name, spend in rows:
        if spend.turns:
            facts = [plural(spend.turns, "turn")]
            facts += [money(spend.cost_usd_micro)] if spend.cost_usd_micro else []
            facts += [duration(spend.ms)] if spend.ms else []
            found.append(joined(Content.styled(f"{name:<18} ", "$quiet"), ", ".join(facts)))
    return lines(found)
