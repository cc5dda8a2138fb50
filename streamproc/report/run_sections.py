"""The HTML of one run's report, section by section, what matters most first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streamproc.errors import plural
from streamproc.report import drawings
from streamproc.report.markup import NOTHING, Html, foreign, moment, tag
from streamproc.report.model import KINDS, Moment, Occurrence, RunReport, SpendShown
from streamproc.report.run_tables import called, decisions, others, policy, reproduce, tree, turns, where_cell
from streamproc.report.tables import Cell, TableRow, muted, number, scrolled, section, table
from streamproc.report.words import KIND_WORDS, MATCH_WORDS, amount, percent, spent

PLAIN: Final = {"output": "said", "artifact": "left", "tests": "reported", "error": "failed with"}  # no calls
STEPS_SHOWN: Final = 4  # of a sequence, at the top
BRIEF_MAX: Final = 140  # characters of a text at the top
STATES: Final = {"halted": "HALTED", "warned": "WARNED", "unremarkable": "NOTHING TO REPORT"}


def heading(report: RunReport, *, level: str = "h1") -> Html:
    """Return what a reader must know within ten seconds: what became of the run, and what happened."""
    scope = [f"{name} {value}" for name, value in (("workflow", report.workflow), ("tenant", report.tenant),
                                                   ("user", report.user)) if value]  # fmt: skip
    parts = [
        tag("span", STATES[report.state], class_=f"badge badge-{report.state}"),
        *([foreign(report.name)] if report.name else []),
        foreign(report.run_id, class_="mono"),
        *map(foreign, scope),
    ]
    if report.badge:
        parts.append(tag("span", report.badge))
    return Html().join([
        tag("div", *parts, class_="eyebrow"),
        tag(level, foreign(report.sentence)),
        _lead(report),
    ])  # fmt: skip


def _lead(report: RunReport) -> Html:
    if not report.code:
        return NOTHING
    decided = report.halted or report.warned
    verb = "Halted" if report.state == "halted" else "Warned, and not halted,"
    at = f"{verb} at turn {decided.turn} of {report.turns_total}" if decided else f"{verb} before its first turn"
    parts: list[Any] = [tag("strong", at)]
    if report.began is not None and decided is not None:
        parts.append(f", {plural(report.during.turns, 'turn')} after the loop began")
    name = f" ({report.detector.replace('_', ' ')})" if report.detector else ""
    ends: list[Any] = []
    if report.resumed:
        ends = [" Resumed ", foreign(report.resumed)]
    elif report.terminal_status:
        ends = [" It ends as ", tag("code", report.terminal_status)]
        ends += [", stop reason ", tag("code", report.stop_reason), "."] if report.stop_reason else ["."]
    return tag("p", *parts, f", by {report.code}{name}.", *ends, class_="lead")


class LiveParts(NamedTuple):
    """What the page of a run adds to its report: the form of the timeline, what stands above it, and what stands below
    the occurrences."""

    form: drawings.TimelineForm = drawings.PLAIN_TIMELINE
    above_timeline: Html = NOTHING
    below_occurrences: Html = NOTHING
    chosen: str = ""  # id of the decision that the sections are about


NOT_LIVE: Final = LiveParts()


def run_sections(report: RunReport, prefix: str = "", live: LiveParts = NOT_LIVE) -> Iterator[Html]:
    """Yield the sections of a report. `prefix` keeps ids apart where a page has several."""
    yield _culprit(report)
    yield _facts(report)
    yield from (section("To know about this report", *(muted(note) for note in report.notes)),) if report.notes else ()
    yield _timeline(report, live)
    yield _events(report)
    yield tree(report)
    yield _occurrences(report)
    yield live.below_occurrences
    yield _budgets(report)
    yield _todo(report)
    yield _pictures(report)
    yield _first_error(report)
    yield decisions(report, live.form.link, live.chosen)
    yield turns(report, prefix)
    yield others(report)
    yield policy(report)
    yield reproduce(report)


def _culprit(report: RunReport) -> Html:
    """Return what repeated, in its own words: the last occurrence, or each step of the last round."""
    last = report.occurrences[-report.period :]
    if not any(one.args or one.answer for one in last):
        return NOTHING
    rows: list[tuple[str, Any]] = []
    if report.period > 1:
        rows = [(f"step {one.step}", _brief(one)) for one in last[:STEPS_SHOWN]]
        if len(last) > STEPS_SHOWN:
            rows.append(("", f"… {len(last) - STEPS_SHOWN} more steps"))
    elif last[0].what in PLAIN:
        rows = [(PLAIN[last[0].what], Html().join([foreign(last[0].node), ": ", foreign(last[0].answer)]))]
    else:
        one = last[0]
        rows = [("called", called(one.what, one.args)), ("got", foreign(one.answer) if one.answer else "no answer")]
    return tag("dl", *(part for name, value in rows for part in (tag("dt", name), tag("dd", value))), class_="culprit")


def _brief(one: Occurrence) -> Html:
    """Return a step on a few lines."""
    answer = one.answer if len(one.answer) <= BRIEF_MAX else f"{one.answer[:BRIEF_MAX]}…"
    if one.what in PLAIN:
        return tag("span", foreign(one.node), f" {PLAIN[one.what]}: ", foreign(answer))
    args = one.args if len(one.args) <= BRIEF_MAX else f"{one.args[:BRIEF_MAX]}…"
    return tag("span", called(one.what, args), tag("span", foreign(answer), class_="answer") if answer else NOTHING)


def _when(at: Moment) -> Html:
    parts = [part for part in (moment(at.at, "whole"), at.place) if part]
    return tag("small", Html(", ").join(parts)) if parts else NOTHING


def _facts(report: RunReport) -> Html:
    """Return the cards: when it began, was warned and halted, and what it cost before and after."""
    moments = [_card("The loop began", report.began)] if report.began is not None else []
    if report.warned is not None:
        early = report.began is not None and report.warned.turn < report.began.turn
        moments.append(_card("An earlier warning" if early else "Warned", report.warned, "is-warn"))
    if report.halted is not None:
        moments.append(_card("Halted", report.halted, "is-halt"))
    costs = [_cost_card("In all", report.total)]
    if report.code:
        loop = report.began is not None
        costs = [
            _cost_card("Before the loop" if loop else "Before", report.before),
            _cost_card("In the loop" if loop else "The turn that caused it", report.during),
        ]
        if report.after.turns:
            costs.append(_cost_card(f"After the {'halt' if report.halted else 'warning'}, as recorded", report.after))
    if report.estimate is not None:
        costs.append(_cost_card(f"Estimate: the rest of {report.estimate.budget}", report.estimate.spend, "≈ "))
    return Html().join(tag("dl", *cards, class_="facts") for cards in (moments, costs) if cards)


def _card(name: str, moment: Moment, class_: str | None = None) -> Html:
    return tag("div", tag("dt", name), tag("dd", f"turn {moment.turn} ", _when(moment)), class_=class_)


def _cost_card(name: str, spend: SpendShown, about: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", f"{about}{plural(spend.turns, 'turn')} ", _cost(spend)))


def _cost(spend: SpendShown) -> Html:
    return tag("small", spent(spend).partition(", ")[2] or "cost not reported")


def _timeline(report: RunReport, live: LiveParts) -> Html:
    if not report.stretches:
        return NOTHING
    used = {kind for stretch in report.stretches for kinds in stretch.kinds.values() for kind in kinds}
    keys = [tag("li", drawings.key_mark(kind), KIND_WORDS[kind]) for kind in KINDS if kind in used]
    keys.append(tag("li", tag("b", "W", class_="sev-warn"), "warning"))
    keys.append(tag("li", tag("b", "H", class_="sev-halt"), "halt"))
    if report.events:
        keys.append(tag("li", tag("b", "┊"), "an event besides turns"))
    size = report.stretches[0].last - report.stretches[0].first + 1
    text = f"A column stands for {size} turns; its parts are in the order of this legend."
    more = muted(text) if size > 1 else NOTHING
    drawn = drawings.timeline(report, live.form)
    drawing = scrolled(drawn, "timeline")
    return section("What the run did", live.above_timeline, drawing, tag("ul", *keys, class_="legend"), more)


def _events(report: RunReport) -> Html:
    if not report.events:
        return NOTHING
    left_out = (
        muted(f"The first {plural(report.events_left_out, 'event')} left out") if report.events_left_out else NOTHING
    )
    rows = [
        TableRow([number(one.turn), where_cell("", one.at, one.place), Cell(foreign(one.what), "wide")])
        for one in report.events
    ]
    return section("Besides turns", left_out, table(["At turn", "Where", "What happened"], rows))


# -- occurrences


def _occurrences(report: RunReport) -> Html:
    shown = report.occurrences
    if not shown:
        return NOTHING
    left_out = (
        muted(f"… {plural(report.occurrences_left_out, 'occurrence')} left out")
        if report.occurrences_left_out
        else NOTHING
    )
    if report.period > 1:
        title = f"What repeated: {report.period} steps, again and again"
        return section(title, _rounds(report), left_out)
    rows = [TableRow(list(_occurrence(one, shown[at - 1] if at else None))) for at, one in enumerate(shown)]
    heads = ["Turn", "Where", "What it did", "What came back", "Compared with the one before"]
    title = "What repeated, occurrence by occurrence" if len(shown) > 1 else "The turn that caused it"
    return section(title, table(heads, rows), left_out)


def _occurrence(one: Occurrence, before: Occurrence | None) -> Iterator[Any]:
    yield number(one.turn)
    yield where_cell(one.node, one.at, one.place)
    same_args = before is not None and one.args and one.args == before.args and one.what == before.what
    same_answer = before is not None and one.answer and one.answer == before.answer
    if one.what in PLAIN:
        yield PLAIN[one.what]
    elif same_args and before is not None:
        yield Cell(tag("span", f"= as at turn {before.turn}", class_="equal"), "wide")
    else:
        yield Cell(called(one.what, one.args) if one.what else tag("span", "not kept", class_="muted"), "wide")
    if same_answer and before is not None:
        yield Cell(tag("span", f"= as at turn {before.turn}", class_="equal"), "wide")
    else:
        yield Cell(foreign(one.answer) if one.answer else tag("span", "—", class_="muted"), "wide")
    yield _match(one)


def _match(one: Occurrence) -> Html:
    words = MATCH_WORDS[one.match]
    if one.match in ("same", "normalised", "near"):
        return tag("span", f"↻ {words}", class_="same")
    return tag("span", words, class_="muted")


def _rounds(report: RunReport) -> Html:
    """Return the steps of a sequence, one row each, and its rounds side by side."""
    rounds = sorted({one.round for one in report.occurrences})[-4:]
    heads = ["Step", *(f"Round {one}" for one in rounds)]
    rows = []
    for step in range(1, report.period + 1):
        cells: list[Any] = [number(step)]
        before: Occurrence | None = None
        for round_ in rounds:
            found = next((one for one in report.occurrences if (one.round, one.step) == (round_, step)), None)
            cells.append(Cell(_step(found, before) if found else NOTHING, "wide"))
            before = found or before
        rows.append(TableRow(cells))
    return table(heads, rows)


def _step(one: Occurrence, before: Occurrence | None) -> Html:
    head = tag("small", f"turn {one.turn}, ", foreign(one.node), f", {one.place}")
    same = before is not None and one.match in ("same", "normalised", "near")
    if same and (one.args, one.answer) == (before.args, before.answer) if before else False:
        return Html().join([head, tag("br"), _match(one)])
    said = one.what in PLAIN
    call = NOTHING if said else called(one.what, one.args)
    parts = [head, tag("br"), call, foreign(one.answer, class_=None if said else "answer")]
    return Html().join([*parts, tag("br"), _match(one)] if same else parts)


# -- what to do, drawings, budgets


def _todo(report: RunReport) -> Html:
    if not report.todo:
        return NOTHING
    steps = [tag("li", one.text, " ", tag("code", one.action)) for one in report.todo]
    return section("What to do", muted("The first is the policy's action; the others are alternatives, best first."),
                   tag("ol", *steps, class_="todo"))  # fmt: skip


def _pictures(report: RunReport) -> Html:
    found: list[Html] = []
    if report.ring is not None:
        found.append(tag("div", tag("h2", "The cycle of nodes"), drawings.ring(report.ring), _handovers(report)))
    if len(report.trend) > 1:
        last = report.trend[-1]
        text = (
            "Failing tests by turn (line), and the fewest so far (dashes): "
            f"{last.failing} at the end, {last.best} at best."
        )
        found.append(tag("div", tag("h2", "Failing tests"), drawings.trend(report.trend), muted(text)))
    return tag("section", tag("div", *found, class_="two")) if found else NOTHING


def _handovers(report: RunReport) -> Html:
    assert report.ring is not None
    rows = [TableRow([foreign(one.source), foreign(one.target), number(one.times)]) for one in report.ring.edges[:16]]
    return table(["From", "To", "Times"], rows)


def _budgets(report: RunReport) -> Html:
    if not report.budgets:
        return NOTHING
    rows = [
        TableRow([
            one.name, number(amount(one.used, one.unit)), number(amount(one.limit, one.unit)),
            number(percent(one.used, one.limit)), drawings.spend_bar(one),
        ])
        for one in report.budgets
    ]  # fmt: skip
    when = "at the halt" if report.halted else "at the end of the log"
    basis = muted(f"The estimate: {report.estimate.basis}.") if report.estimate else NOTHING
    heads = ["Budget", "Used", "Limit", "Share", "Drawn"]
    return section(f"Budgets {when}", table(heads, rows), basis)


def _first_error(report: RunReport) -> Html:
    one = report.first_error
    if one is None:
        return NOTHING
    inside = report.began is not None and one.turn >= report.began.turn
    title = "The first error of the loop" if inside else "The first error of the run"
    what = f", {one.error_class}" if one.error_class else ""
    text = tag("pre", one.text or "(the log has no text of it)", dir="auto")
    return section(title, tag("p", f"Turn {one.turn}, ", foreign(one.node), foreign(what), f", {one.place}:"), text)
