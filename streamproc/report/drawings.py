"""The drawings of a report, as SVG: the timeline by node, the cycle, the trend of failing tests, spend on budgets.

Shapes tell what colours tell, too. Every drawing has a title for screen readers, and a table or a text beside it says
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import cos, pi, sin
from typing import Final, NamedTuple

from streamproc.core.decision import Decision
from streamproc.model.escaping import escape
from streamproc.model.formats import grouped
from streamproc.report.markup import NOTHING, Html, tag
from streamproc.report.model import KINDS, BudgetUse, CycleRing, RunReport, Stretch, TrendPoint, TurnKind
from streamproc.report.words import KIND_WORDS, amount, percent

WIDTH: Final = 960
LEFT: Final = 150  # of the drawing: names of nodes
RIGHT: Final = 16
TOP: Final = 48
OPEN_ROOM: Final = 24  # at the end, for turns that have not ended
FLAG: Final = 15  # width of a flag, with a gap
ROW_HEIGHT: Final = 28
COLUMN: Final = 22  # height of a column that stands for several turns
TIMES: Final = "\u00d7"
LOOP_NAME: Final = 60  # width of the words "the loop"
NAME_MAX: Final = 20  # characters of a node's name in a drawing
TREND_HEIGHT: Final = 170


def short(name: str, most: int = NAME_MAX) -> str:
    """Return a name that fits into a drawing, with its control characters visible."""
    name = escape(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _svg(title: str, width: int, height: int, *parts: Html, class_: str = "", role: str = "img") -> Html:
    return tag(
        "svg",
        tag("title", title),
        *parts,
        viewBox=f"0 0 {width} {height}",
        role=role,
        class_=f"drawing {class_}".strip(),
    )


def _text(x: float, y: float, text: str, class_: str, anchor: str = "start") -> Html:
    return tag("text", text, x=_n(x), y=_n(y), class_=class_, text_anchor=anchor)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def mark(kind: TurnKind, x: float, y: float, size: float = 5.0) -> Html:
    """Return the mark of a kind of turn: a disc, a ring, a cross, a bar, a triangle or a dot."""
    class_ = f"k-{kind}"
    if kind == "new":
        return tag("circle", cx=_n(x), cy=_n(y), r=_n(size), class_=class_)
    if kind == "repeat":
        return tag("rect", x=_n(x - size), y=_n(y - size), width=_n(2 * size), height=_n(2 * size), class_=class_)
    if kind == "error":
        a, b, c, d = _n(x - size), _n(x + size), _n(y - size), _n(y + size)
        return tag("path", d=f"M{a} {c}L{b} {d}M{a} {d}L{b} {c}", class_=class_)
    if kind == "narration":
        return tag("path", d=f"M{_n(x - size)} {_n(y)}H{_n(x + size)}", class_=class_)
    if kind == "waiting":
        left, right, low = _n(x - size), _n(x + size), _n(y + size)
        return tag("path", d=f"M{_n(x)} {_n(y - size)}L{right} {low}H{left}Z", class_=class_)
    return tag("circle", cx=_n(x), cy=_n(y), r="2", class_=class_)


def key_mark(kind: TurnKind) -> Html:
    """Return the mark of a kind for a legend or a table."""
    return tag("svg", mark(kind, 8, 8), viewBox="0 0 16 16", class_="key", aria_hidden="true")


# -- timeline


class TimelineForm(NamedTuple):
    """How a page draws a timeline, beyond what a file can have: the width of each stretch (None: all alike), the
    address of each decision, and the nodes whose turn has begun and not ended."""

    widths: Sequence[float] | None = None
    link: Callable[[Decision], str] | None = None
    open_nodes: Sequence[str] = ()


PLAIN_TIMELINE: Final = TimelineForm()


def timeline(report: RunReport, form: TimelineForm = PLAIN_TIMELINE) -> Html:
    """Draw the turns of each node, the loop as a band, warnings and halts as flags."""
    if not report.stretches:
        return NOTHING
    height = TOP + ROW_HEIGHT * len(report.nodes) + 24
    room = WIDTH - LEFT - RIGHT - (OPEN_ROOM if form.open_nodes else 0)
    step = room / len(report.stretches)
    centres = _centres(form.widths, room) if form.widths else [
        LEFT + (number + 0.5) * step for number in range(len(report.stretches))
    ]  # fmt: skip

    def at(turn: int) -> float:
        number = next((n for n, one in enumerate(report.stretches) if one.first <= turn <= one.last), 0)
        return centres[number]

    size = max(2.0, min(6.0, step / 2 - 0.8))
    bottom = TOP + ROW_HEIGHT * len(report.nodes)
    parts: list[Html] = []
    decided = report.halted or report.warned
    if report.began is not None and decided is not None and decided.turn >= report.began.turn:
        begin, end = at(report.began.turn) - step / 2, at(decided.turn) + step / 2
        before = begin - LEFT > LOOP_NAME
        parts.append(tag("rect", x=_n(begin), y=TOP - 8, width=_n(max(end - begin, 3)), height=bottom - TOP + 12,
                         class_="loop"))  # fmt: skip
        side = (begin - 6, "end") if before else (end + 6, "start")
        parts.append(_text(side[0], TOP - 10, "the loop", "loop-name", side[1]))
    for number, node in enumerate(report.nodes):
        y = TOP + ROW_HEIGHT * number + ROW_HEIGHT / 2
        parts += [
            tag("line", x1=LEFT, y1=_n(y), x2=WIDTH - RIGHT, y2=_n(y), class_="row-line"),
            _text(LEFT - 12, y + 4, short(node), "row-name", "end"),
        ]
        for place, stretch in enumerate(report.stretches):
            if kinds := stretch.kinds.get(node):
                parts.append(_stretch_mark(stretch, kinds, centres[place], y, size))
        if node in form.open_nodes:
            box = tag("rect", x=WIDTH - RIGHT - 14, y=_n(y - 6), width=12, height=12, class_="open-turn")
            parts.append(tag("g", tag("title", "a turn that has begun and not ended"), box))
    for event in report.events:
        x = _n(at(min(event.turn, max(0, report.turns_total - 1))) - step / 2)
        line = tag("line", x1=x, y1=TOP - 4, x2=x, y2=_n(bottom), class_="line-event")
        parts.append(tag("g", tag("title", f"at turn {event.turn}: {escape(event.what)}"), line))
    parts += _flags(report, at, bottom, form.link)
    parts += _turn_axis(report, at, bottom + 20)
    role = "img" if form.link is None else "group"  # what is in an image cannot be reached
    return _svg(_timeline_title(report), WIDTH, height, *parts, class_="timeline", role=role)


def _centres(widths: Sequence[float], room: float) -> list[float]:
    """Return where stretches are whose widths differ; none is narrower than a fifth of the mean."""
    mean = sum(widths) / len(widths) or 1.0
    wide = [max(one, mean / 5) for one in widths]
    scale, begin, found = room / sum(wide), float(LEFT), []
    for one in wide:
        found.append(begin + one * scale / 2)
        begin += one * scale
    return found


def _stretch_mark(stretch: Stretch, kinds: dict[str, int], x: float, y: float, size: float) -> Html:
    where = f"turn {stretch.first}" if stretch.first == stretch.last else f"turns {stretch.first} to {stretch.last}"
    shown = [one for one in KINDS if one in kinds]
    what = ", ".join(KIND_WORDS[one] if kinds[one] == 1 else f"{kinds[one]} {TIMES} {KIND_WORDS[one]}" for one in shown)
    title = tag("title", f"{where}: {what}")
    if stretch.first == stretch.last:
        return tag("g", title, mark(shown[0], x, y, size))
    column, top = [], y - COLUMN / 2
    for kind in shown:  # always in this order, so that the place says it, too
        height = COLUMN * kinds[kind] / sum(kinds.values())
        column.append(tag("rect", x=_n(x - size), y=_n(top), width=_n(2 * size), height=_n(height), class_=f"c-{kind}"))
        top += height
    return tag("g", title, *column)


def _flags(
    report: RunReport, at: Callable[[int], float], bottom: float, link: Callable[[Decision], str] | None
) -> Iterator[Html]:
    drawn: list[float] = []
    turns: set[int] = set()  # several decisions on a turn have one flag, the most severe
    for one in sorted(report.decisions, key=lambda one: one.severity != "halt"):
        if one.severity not in ("halt", "warn") or one.trigger is None or one.trigger.turn is None:
            continue
        if one.trigger.turn in turns:
            continue
        turns.add(one.trigger.turn)
        x = at(min(one.trigger.turn, max(0, report.turns_total - 1)))
        letter = "H" if one.severity == "halt" else "W"
        title = tag("title", f"{one.severity} at turn {one.trigger.turn}: {one.code}")
        place = _free(x, drawn)
        flag = tag("rect", x=_n(place - 7), y=2, width=14, height=16, class_=f"flag-{one.severity}")
        line = tag("line", x1=_n(x), y1=18, x2=_n(x), y2=_n(bottom), class_=f"line-{one.severity}")
        if any(abs(place - other) < FLAG for other in drawn):
            yield tag("g", title, line)
            continue
        drawn.append(place)
        marks = (title, line, flag, _text(place, 14, letter, "flag-letter", "middle"))
        yield tag("g", *marks) if link is None else tag("a", *marks, href=link(one), class_="flag-link")


def _free(x: float, drawn: Sequence[float]) -> float:
    """Return where a flag has room: at its place, or just before a flag that is in its way."""
    return next((other - FLAG for other in drawn if 0 <= other - x < FLAG), x)


def _turn_axis(report: RunReport, at: Callable[[int], float], y: float) -> Iterator[Html]:
    last = report.turns_total - 1
    marks = sorted({round(last * part / 8) for part in range(9)}) if last > 0 else [0]
    for turn in marks:
        yield _text(at(turn), y, grouped(turn), "axis", "middle")
    yield _text(LEFT - 12, y, "turn", "axis", "end")


def _timeline_title(report: RunReport) -> str:
    loop = f", the loop from turn {report.began.turn}" if report.began is not None else ""
    halt = f", halted at turn {report.halted.turn}" if report.halted is not None else ""
    return f"{report.turns_total} turns of {len(report.nodes)} nodes{loop}{halt}"


# -- ring


def ring(cycle: CycleRing) -> Html:
    """Draw a cycle of nodes: each handover that happened, with its count, and the iterations in the middle."""
    width, height, radius = 440, 300, 100
    centre_x, centre_y = width / 2, height / 2
    count = len(cycle.nodes)
    angles = {node: 2 * pi * number / count - pi / 2 for number, node in enumerate(cycle.nodes)}
    parts = [
        tag("path", d=f"M{centre_x} {centre_y - radius}A{radius} {radius} 0 1 1 {centre_x - 0.1} {centre_y - radius}",
            class_="orbit"),
        _text(centre_x, centre_y, str(cycle.iterations), "iterations", "middle"),
        _text(centre_x, centre_y + 20, "iteration" if cycle.iterations == 1 else "iterations", "axis", "middle"),
    ]  # fmt: skip
    for number, node in enumerate(cycle.nodes):
        following = cycle.nodes[(number + 1) % count]
        times = next((one.times for one in cycle.edges if (one.source, one.target) == (node, following)), 0)
        if times:
            middle = angles[node] + pi / count
            x, y = centre_x + (radius - 34) * cos(middle), centre_y + (radius - 34) * sin(middle)
            parts.append(_arrow(centre_x, centre_y, radius, middle))
            parts.append(_text(x, y + 4, f"{times} {TIMES}", "axis", "middle"))
    for node, angle in angles.items():
        x, y = centre_x + radius * cos(angle), centre_y + radius * sin(angle)
        name = short(node, 18)
        wide = 14 + 7.2 * len(name)
        x = min(max(x, wide / 2 + 2), width - wide / 2 - 2)
        parts.append(tag("rect", x=_n(x - wide / 2), y=_n(y - 13), width=_n(wide), height=26, rx=13, class_="node"))
        parts.append(_text(x, y + 4, name, "node-name", "middle"))
    nodes = ", ".join(short(node, 60) for node in cycle.nodes)
    return _svg(f"cycle of {nodes}: {cycle.iterations} iterations", width, height, *parts, class_="ring")


def _arrow(x: float, y: float, radius: float, angle: float) -> Html:
    """Return the head of an arrow on a circle, clockwise."""
    tip_x, tip_y = x + radius * cos(angle + 0.06), y + radius * sin(angle + 0.06)
    back = angle - 0.06
    outer = f"{_n(x + (radius + 6) * cos(back))} {_n(y + (radius + 6) * sin(back))}"
    inner = f"{_n(x + (radius - 6) * cos(back))} {_n(y + (radius - 6) * sin(back))}"
    return tag("path", d=f"M{_n(tip_x)} {_n(tip_y)}L{outer}L{inner}Z", class_="arrow")


# -- trend and spend


def trend(points: Sequence[TrendPoint]) -> Html:
    """Draw how many tests fail, with the fewest so far."""
    width, left, bottom = 440, 44, TREND_HEIGHT - 28
    most = max(1, *(one.failing for one in points))
    first, last = points[0].turn, points[-1].turn

    def x(turn: int) -> float:
        return left + (width - left - 16) * (turn - first) / max(1, last - first)

    def y(failing: int) -> float:
        return bottom - (bottom - 16) * failing / most

    line = "L".join(f"{_n(x(one.turn))} {_n(y(one.failing))}" for one in points)
    best = "".join(f"H{_n(x(one.turn))}V{_n(y(one.best))}" for one in points)
    parts = [
        tag("line", x1=left, y1=bottom, x2=width - 16, y2=bottom, class_="row-line"),
        _text(left - 8, bottom + 4, "0", "axis", "end"),
        _text(left - 8, y(most) + 4, grouped(most), "axis", "end"),
        tag("path", d=f"M{_n(x(first))} {_n(y(points[0].best))}{best}", class_="best"),
        tag("path", d=f"M{line}", class_="failing"),
        *(tag("circle", cx=_n(x(one.turn)), cy=_n(y(one.failing)), r="3", class_="failing-point") for one in points),
        _text(left, TREND_HEIGHT - 8, f"turn {first}", "axis"),
        _text(width - 16, TREND_HEIGHT - 8, f"turn {last}", "axis", "end"),
    ]
    begin, end = points[0], points[-1]
    title = f"failing tests: {begin.failing} at turn {first}, {end.failing} at turn {last}, fewest {end.best}"
    return _svg(title, width, TREND_HEIGHT, *parts, class_="trend")


def spend_bar(use: BudgetUse) -> Html:
    """Draw how much of a budget is used."""
    share = min(1.0, use.used / use.limit) if use.limit else 1.0
    title = f"{use.name}: {amount(use.used, use.unit)} of {amount(use.limit, use.unit)}, {percent(use.used, use.limit)}"
    over = "over" if use.used >= use.limit else "near" if share >= 0.8 else "under"
    return _svg(
        title, 240, 12,
        tag("rect", x=0, y=1, width=240, height=10, rx=5, class_="bar-all"),
        tag("rect", x=0, y=1, width=_n(max(3, 240 * share)), height=10, rx=5, class_=f"bar-{over}"),
        class_="bar",
    )  # fmt: skip
