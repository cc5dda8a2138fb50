"""Small drawings of the views: the badge of a loop, the trend of failing tests, hashes as squares, shares as bars."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from streamproc.report.markup import NOTHING, Html, tag
from streamproc.report.words import percent

LOOP: Final = re.compile(r"Loop (\d{1,6})/(\d{1,6})")
STEPS_MAX: Final = 16  # of a loop that are drawn one by one
POINTS_MAX: Final = 40
HUES: Final = 8  # classes of colours of hashes: h0 to h7
CELLS: Final = 15  # of a hash's square of 5 by 5: its left half and its middle


@lru_cache(maxsize=512)
def loop_badge(badge: str) -> Html:
    """Return `Loop 3/8` with its steps drawn; other badges as they are."""
    if not badge:
        return NOTHING
    found = LOOP.fullmatch(badge)
    if found is None or not 0 < int(found[2]) <= STEPS_MAX:
        return tag("span", badge, class_="loop-badge")
    done, of = int(found[1]), int(found[2])
    steps = [tag("rect", x=6 * one, y=0, width=4, height=10, rx=1, class_="step-done" if one < done else "step")
             for one in range(of)]  # fmt: skip
    near = " near" if 2 * done > of else ""
    drawn = tag("svg", *steps, viewBox=f"0 0 {6 * of - 2} 10", class_=f"steps steps-{of}", aria_hidden="true")
    return tag("span", badge, drawn, class_=f"loop-badge{' over' if done >= of else near}")


@lru_cache(maxsize=512)
def sparkline(points: tuple[int, ...]) -> Html:
    """Return the trend of failing tests as a line; nothing for less than two results."""
    points = points[-POINTS_MAX:]
    if len(points) < 2:
        return NOTHING
    width, height, most = 88, 22, max(1, *points)
    step = (width - 8) / (len(points) - 1)
    places = [(4 + step * at, height - 4 - (height - 8) * one / most) for at, one in enumerate(points)]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    best = min(points)
    title = f"failing tests: {points[0]} first, {points[-1]} last, {best} at best, of {len(points)} results"
    stuck = len(points) < 3 or min(points[-2:]) >= min(points[:-2])  # the last two results are no better than before
    return tag(
        "svg",
        tag("title", title),
        tag("path", d=f"M4 {height - 4}H{width - 4}", class_="row-line"),
        tag("path", d=f"M{line}", class_="spark"),
        tag("circle", cx=f"{places[-1][0]:.1f}", cy=f"{places[-1][1]:.1f}", r="2.6", class_="spark-end"),
        viewBox=f"0 0 {width} {height}",
        class_=f"sparkline {'flat' if stuck else 'falling'}",
        role="img",
    )


def identicon(hash_: int) -> Html:
    """Return a hash as a symmetric square, so that equal things look equal, where their content is not known."""
    bits = hash_ & 0xFFFFFFFFFFFFFFFF
    squares = []
    for cell in range(CELLS):
        if bits >> cell & 1:
            column, row = divmod(cell, 5)
            squares += [f"M{x} {row}h1v1h-1z" for x in {column, 4 - column}]
    name = f"{bits:016x}"
    drawn = tag("path", d="".join(sorted(squares)) or "M2 2h1v1h-1z")
    return tag("svg", tag("title", name), drawn, viewBox="-.5 -.5 6 6", role="img",
               class_=f"identicon h{(bits >> 40) % HUES}")  # fmt: skip


def share_bar(part: float, whole: float, title: str) -> Html:
    """Return how much of a limit is used."""
    if not whole:
        return NOTHING
    share = min(1.0, part / whole)
    over = "over" if part >= whole else "near" if share >= 0.8 else "under"
    return tag(
        "svg",
        tag("title", f"{title}: {percent(int(part * 100), int(whole * 100))}"),
        tag("rect", x=0, y=1, width=120, height=8, rx=4, class_="bar-all"),
        tag("rect", x=0, y=1, width=f"{max(3, 120 * share):.0f}", height=8, rx=4, class_=f"bar-{over}"),
        viewBox="0 0 120 10",
        class_="share",
        role="img",
    )
