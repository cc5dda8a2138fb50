"""Charts of the fleet: turns, halts, spend and the delay of decisions over a window, and who has spent what.

They are SVG from the server. Each bar is a link to the runs or decisions of its stretch of time, and a table has the
same figures. Bars stretch with the page; texts stand beside them, so they stay readable on a phone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10
from typing import Final, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from streamproc.model.formats import HOUR_MS, clock, grouped, money
from streamproc.model.time_range import address_time
from streamproc.read_model.series import SPEND_FIELDS, WINDOWS, SeriesBucket, SeriesWindow, SpendShare
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import captioned
from streamproc.report.words import percent
from streamproc.web.keys import MODEL, field_of
from streamproc.web.layout import page
from streamproc.web.moments import moment
from streamproc.web.views.strip import shown_delay

DEFAULT: Final = "1h"
NAMES: Final = 10  # workflows or users in a list of spend
BAR: Final = 10  # units of a bucket's width; a bar takes eight
HEIGHT: Final = 100
LINES: Final = (0, 50, 100)  # of the grid
NICE: Final = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)  # what the top of a scale begins with: half of it is a round number
SWITCH: Final = {"15m": "15 min", "1h": "1 h", "24h": "24 h"}


class BarPart(NamedTuple):
    """A part of a bar: its value, its class and how its value is written."""

    value: Callable[[SeriesBucket], float]
    class_: str


class Chart(NamedTuple):
    """A chart: the parts of its bars from the bottom up, and where a bar leads."""

    id: str
    title: str
    layers: tuple[BarPart, ...]
    shown: Callable[[float], str]
    words: Callable[[SeriesBucket], str]
    path: str
    query: dict[str, str]
    summary: str
    least: float  # the top of the scale is not below


async def charts(request: web.Request) -> web.Response:
    """Serve the charts of a window."""
    model, name = request.app[MODEL], field_of(request, "window")
    name = name if name in WINDOWS else DEFAULT
    window, buckets = WINDOWS[name], model.series(name)
    drawn = [drawn_chart(one, buckets) for one in charts_of(window, buckets)]
    spend = [spend_list(field, model.spend_by(field, name, limit=NAMES), buckets) for field in SPEND_FIELDS]
    body = [
        tag("h1", "Charts"),
        tag("p", "A bar leads to its runs or decisions. The last bar is not complete yet.", class_="lead"),
        switch(name),
        NOTHING if model.turns else tag("p", "This page was started with --no-turns: turns and spend are not known.",
                                        class_="reading"),
        tag("div", tag("div", *drawn, class_="charts"), tag("div", *spend, class_="charts"), table(buckets),
            id="charts", data_live=True),
    ]  # fmt: skip
    return page("Charts", Html().join(body), request, events="view=charts")


def switch(chosen: str) -> Html:
    """Return the links to the windows."""
    links = [
        tag("a", words, href=f"/charts?window={name}", aria_current="true" if name == chosen else None)
        for name, words in SWITCH.items()
    ]
    return tag("div", *links, class_="switch", role="group", aria_label="window")


def charts_of(window: SeriesWindow, buckets: tuple[SeriesBucket, ...]) -> tuple[Chart, ...]:
    """Return the charts of a window, with what their buckets are in all."""
    step_s, over = window.step_ms / 1_000, f"in the last {window.words}"
    turns, cost = sum(one.turns for one in buckets), sum(one.cost_usd_micro for one in buckets)
    halts, stops = sum(one.halts for one in buckets), sum(one.stops for one in buckets)
    late = max((one.late_ms for one in buckets if one.late_ms is not None), default=None)
    by_people = f", and {grouped(stops)} stopped by people" if stops else ""
    return (
        Chart("turns", "Turns a second", (BarPart(lambda one: one.turns / step_s, "bar-turns"),), _rate,
              lambda one: f"{_rate(one.turns / step_s)} turns a second, {grouped(one.turns)} turns", "/", {},
              f"{grouped(turns)} turns {over}", 1.0),
        Chart("halts", "Halts", (BarPart(lambda one: one.halts, "bar-halts"),
              BarPart(lambda one: one.stops, "bar-stops")), _count,
              lambda one: f"{grouped(one.halts)} halted, {grouped(one.stops)} stopped by people",
              "/decisions", {"severity": "halt"}, f"{grouped(halts)} halted{by_people} {over}", 4.0),
        Chart("spend", "Spend", (BarPart(lambda one: one.cost_usd_micro, "bar-spend"),),
              lambda value: money(int(value)), lambda one: f"{money(one.cost_usd_micro)} spent", "/", {},
              f"{money(cost)} {over}, {money(cost * HOUR_MS // window.span_ms)}/h" if cost
              else f"no turn named its cost {over}", 10_000.0),
        Chart("decided-after", "Decided after", (BarPart(lambda one: one.delay_ms or 0, "bar-median"),
              BarPart(lambda one: max(0, (one.late_ms or 0) - (one.delay_ms or 0)), "bar-late")),
              lambda value: shown_delay(round(value)), _delay_words, "/decisions", {},
              "from a turn to its decision: median, and 95 % of them in the lighter part" if late is not None
              else f"no decision {over}", 10.0),
    )  # fmt: skip


def _rate(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else grouped(round(value))


def _count(value: float) -> str:
    return grouped(int(value)) if value == int(value) else f"{value:.1f}"


def _delay_words(one: SeriesBucket) -> str:
    if one.delay_ms is None or one.late_ms is None:
        return "no decision"
    return f"median {shown_delay(one.delay_ms)}, 95 % within {shown_delay(one.late_ms)}"


def scale_top(most: float, least: float) -> float:
    """Return the top of a scale for values up to `most`: 1, 2, 4, 6 or 8 times a power of ten."""
    most = max(most, least)
    power = 10.0 ** floor(log10(most))
    return next(nice * power for nice in NICE if nice * power >= most * (1 - 1e-9))


def drawn_chart(chart: Chart, buckets: tuple[SeriesBucket, ...]) -> Html:
    """Return a chart."""
    top = scale_top(max(sum(layer.value(one) for layer in chart.layers) for one in buckets), chart.least)
    width = BAR * len(buckets)
    grid = [tag("path", d=f"M0 {y}H{width}", class_="grid") for y in LINES]
    bars = [_bar(chart, one, number, top) for number, one in enumerate(buckets)]
    drawn = tag("svg", *grid, *bars, viewBox=f"0 0 {width} {HEIGHT}", preserveAspectRatio="none", aria_hidden="true")
    marks = [tag("span", chart.shown(top * share)) for share in (1, 0.5)] + [tag("span", "0")]
    ends = (buckets[0].start_ms, buckets[len(buckets) // 2].start_ms, buckets[-1].end_ms)
    times = [tag("span", moment(at)) for at in ends[:2]] + [tag("span", "now")]
    return tag(
        "figure",
        tag("figcaption", tag("h2", chart.title), tag("p", chart.summary)),
        tag("div", tag("div", *marks, class_="marks", aria_hidden="true"), drawn, class_="plot"),
        tag("div", *times, class_="times", aria_hidden="true"),
        class_="chart",
        id=chart.id,
    )


def _bar(chart: Chart, one: SeriesBucket, number: int, top: float) -> Html:
    """Return the bar of a bucket as a link; nothing for one without a value. The table has the same links for keyboards
    and screen readers."""
    parts, bottom = [], float(HEIGHT)
    for layer in chart.layers:
        height = HEIGHT * layer.value(one) / top
        if height > 0:
            height = max(height, 1.0)  # the smallest is seen
            bottom -= height
            y, tall = f"{max(0.0, bottom):.1f}", f"{height:.1f}"
            parts.append(tag("rect", x=BAR * number + 1, y=y, width=BAR - 2, height=tall, class_=layer.class_))
    if not parts:
        return NOTHING
    title = tag("title", f"{_between(one)}: {chart.words(one)}")
    area = tag("rect", x=BAR * number, y=0, width=BAR, height=HEIGHT, class_="area")
    return tag("a", title, area, *parts, href=bucket_href(chart.path, one, **chart.query), tabindex="-1")


def bucket_href(path: str, one: SeriesBucket, **query: str) -> str:
    """Return the address of what happened in a bucket."""
    return f"{path}?{urlencode(query | {'since': address_time(one.start_ms), 'until': address_time(one.end_ms)})}"


def _between(one: SeriesBucket) -> str:
    return f"{clock(one.start_ms)[11:]} to {clock(one.end_ms)[11:]} UTC"


def spend_list(field: str, shares: tuple[SpendShare, ...], buckets: tuple[SeriesBucket, ...]) -> Html:
    """Return who has spent what in the window, the largest first."""
    total = sum(one.cost_usd_micro for one in shares)
    since = address_time(buckets[0].start_ms)
    rows = [_spender(field, one, total, since) for one in shares]
    made = tag("table", tag("caption", f"Spend by {field}", class_="unseen"), tag("tbody", *rows)) if rows else tag(
        "p", "No turn named its cost. Send `usage.cost_usd` with your turns.", class_="muted"
    )  # fmt: skip
    return tag("section", tag("h2", f"Spend by {field}"), made, class_="chart spenders", id=f"spend-{field}")


def _spender(field: str, one: SpendShare, total: int, since: str) -> Html:
    name: Html = tag("span", f"no {field}", class_="muted")
    if one.others:
        name = tag("span", "all others", class_="muted")
    elif one.name:
        query = urlencode({field: one.name, "since": since}, errors="replace")
        name = tag("a", foreign(one.name), href=f"/?{query}")
    share = one.cost_usd_micro / total if total else 0.0
    bar = tag("svg", tag("rect", x=0, y=0, width=f"{max(1.0, 100 * share):.1f}", height=10, class_="bar-spend"),
              viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")  # fmt: skip
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", bar, class_="share-cell"),
        tag("td", money(one.cost_usd_micro), class_="number"),
        tag("td", percent(one.cost_usd_micro, total), class_="number"),
    )


def table(buckets: tuple[SeriesBucket, ...]) -> Html:
    """Return the figures of all charts as a table, the newest first, without buckets in which nothing happened."""
    heads = ("From", "Turns", "Spend", "Warnings", "Halts", "Stopped by people", "Decided after", "95 % within")
    rows = [_table_row(one) for one in reversed(buckets) if one.turns or one.halts or one.stops or one.delay_ms]
    made = captioned("Figures of the charts", "figures of the charts", heads, rows, numbers=heads[1:])
    folded = tag("details", tag("summary", "The figures as a table"), made, data_fold=True)
    return tag("section", folded, class_="group", id="figures")


def _table_row(one: SeriesBucket) -> Html:
    runs, decisions = bucket_href("/", one), bucket_href("/decisions", one)
    halts = bucket_href("/decisions", one, severity="halt")

    def linked(value: str, href: str, there: object) -> Html:
        return tag("td", tag("a", value, href=href) if there else "—", class_="number")

    return tag(
        "tr",
        tag("th", moment(one.start_ms), scope="row"),
        linked(grouped(one.turns), runs, one.turns),
        linked(money(one.cost_usd_micro), runs, one.cost_usd_micro),
        linked(grouped(one.warnings), bucket_href("/decisions", one, severity="warn"), one.warnings),
        linked(grouped(one.halts), halts, one.halts),
        linked(grouped(one.stops), halts, one.stops),
        linked(shown_delay(one.delay_ms or 0), decisions, one.delay_ms is not None),
        linked(shown_delay(one.late_ms or 0), decisions, one.late_ms is not None),
    )
