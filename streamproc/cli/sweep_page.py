"""The page of a backtest: one file without scripts and without requests, the same bytes for the same comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from streamproc.errors import plural
from streamproc.replay.comparison import ComparedPolicy, best
from streamproc.report.markup import NOTHING, Html, tag

CHANGED_MAX: Final = 200  # runs listed for each policy
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 340, 70, 46, 16, 20

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #6a7078; --line: #d5d9de; --paper: #fff; --best: #0b6e4f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa3ad; --line: #3a4048; --paper: #16181b; --best: #5fd3a5; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: 1rem 0; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, .runs td { white-space: normal; overflow-wrap: anywhere; }
th:first-child, td:first-child, .runs td { text-align: left; }
tr.best td:first-child { color: var(--best); font-weight: 600; }
svg text { fill: var(--ink); font-size: 12px; } svg .soft { fill: var(--soft); }
svg line, svg path { stroke: var(--line); fill: none; } svg path { stroke: var(--best); stroke-width: 1.5; }
svg circle { fill: var(--soft); } svg circle.best { fill: var(--best); }
p.soft, figcaption { color: var(--soft); }
@media print { body { margin: 0; max-width: none; } details { break-inside: avoid; } }
"""


def page(rows: Sequence[ComparedPolicy]) -> str:
    """Return the page: the table, the curve of saving against false halts, and the runs that change."""
    first = rows[0]
    marked = set(best(rows)) if first.labels and len(rows) > 1 else set()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "Policies compared"),
        tag("style", STYLE),
    )
    body = tag(
        "body",
        tag("h1", "Policies compared"),
        tag("p", _sentence(rows)),
        _table(rows, marked),
        _curve(rows, marked) if first.labels and len(rows) > 1 else NOTHING,
        *map(_changed, rows[1:]),
    )
    return Html("<!doctype html>\n") + tag("html", head, body, lang="en") + Html("\n")


def _sentence(rows: Sequence[ComparedPolicy]) -> str:
    first = rows[0]
    text = f"{plural(first.runs, 'run')}, {plural(first.turns, 'turn')}. Each policy is compared with {first.ref.name}."
    if first.labels:
        healthy = sum(label.healthy for label in first.labels.values())
        text += f" {plural(healthy, 'run')} solved the task, or had a halt judged a false alarm: their halts are false."
    return text


def _table(rows: Sequence[ComparedPolicy], marked: set[int]) -> Html:
    heads = ("policy", "halted", "earlier", "later", "never", "new", "turns saved", "tokens saved", "USD saved",
             "false halts", "right halts")  # fmt: skip
    lines = []
    for index, row in enumerate(rows):
        labelled = bool(row.labels)
        cells = (
            row.ref.name, len(row.halts), row.count("earlier"), row.count("later"), row.count("never"),
            row.count("new"), f"{row.turns_after} ({row.share_saved:.1%})", row.tokens_after or "",
            row.cost_after or "", len(row.false_halts) if labelled else "", len(row.right_halts) if labelled else "",
        )  # fmt: skip
        lines.append(_row("td", cells, "best" if index in marked else None))
    return tag("table", tag("thead", _row("th", heads)), tag("tbody", *lines))


def _row(cell: str, contents: Iterable[object], class_: str | None = None) -> Html:
    return tag("tr", *(tag(cell, content) for content in contents), class_=class_)


def _curve(rows: Sequence[ComparedPolicy], marked: set[int]) -> Html:
    """Draw turns saved over false halts; a line joins the policies that no other one beats."""
    false_max = max(1, *(len(row.false_halts) for row in rows))
    saved_max = max(0.001, *(row.share_saved for row in rows))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(row: ComparedPolicy) -> tuple[float, float]:
        x = LEFT + (right - LEFT) * len(row.false_halts) / false_max
        y = bottom - (bottom - TOP) * row.share_saved / saved_max
        return round(x, 1), round(y, 1)

    parts = [
        tag("line", x1=LEFT, y1=bottom, x2=right, y2=bottom),
        tag("line", x1=LEFT, y1=TOP, x2=LEFT, y2=bottom),
        tag("text", "false halts", x=right, y=HEIGHT - 8, text_anchor="end", class_="soft"),
        tag("text", "turns saved", x=LEFT + 8, y=TOP + 4, class_="soft"),
    ]
    for step in sorted({0, false_max // 2, false_max}):
        x = LEFT + (right - LEFT) * step / false_max
        parts.append(tag("text", step, x=f"{x:.1f}", y=bottom + 18, text_anchor="middle"))
    for share in (0.0, saved_max / 2, saved_max):
        y = bottom - (bottom - TOP) * share / saved_max
        parts.append(tag("text", f"{share:.1%}", x=LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    front = sorted(place(rows[index]) for index in marked)
    if len(front) > 1:
        parts.append(tag("path", d="M" + " L".join(f"{x} {y}" for x, y in front)))
    for index, row in sorted(enumerate(rows), key=lambda pair: pair[0] in marked):  # the best ones above the others
        x, y = place(row)
        title = f"{row.ref.name}: {plural(len(row.false_halts), 'false halt')}, {row.share_saved:.1%} of turns saved"
        parts.append(tag("circle", tag("title", title), cx=x, cy=y, r=4, class_="best" if index in marked else None))
    drawn = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label="Turns saved over false halts")
    caption = "Each dot is a policy. No policy beats those on the line: none saves as much with fewer false halts."
    return tag("figure", drawn, tag("figcaption", caption))


def _changed(row: ComparedPolicy) -> Html:
    changed = [one for one in row.changed if one.change != "same"]
    if not changed:
        return NOTHING
    lines = []
    for one in changed[:CHANGED_MAX]:
        here = "not halted" if one.halt is None else f"{one.halt.code} at turn {one.halt.turn}"
        before = "not halted" if one.before is None else f"{one.before.code} at turn {one.before.turn}"
        lines.append(_row("td", (one.run_id, one.change, here, f"first policy: {before}")))
    return tag(
        "details",
        tag("summary", f"{row.ref.name}: {plural(len(changed), 'changed run')}"),
        tag("table", tag("tbody", *lines), class_="runs"),
        tag("p", f"and {len(changed) - CHANGED_MAX} more; --json has all of them", class_="soft")
        if len(changed) > CHANGED_MAX
        else NOTHING,
    )
