"""The HTML of a report about all runs of a log: stuck runs first, each with its own report below."""

from __future__ import annotations

from typing import Any

from streamproc.errors import plural
from streamproc.model.formats import clock, grouped, short, usd
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.model import FleetReport, RunReport, RunRow, SpendShown
from streamproc.report.run_sections import STATES, heading, run_sections
from streamproc.report.run_tables import LONG_TABLE
from streamproc.report.tables import Cell, TableRow, filter_bar, muted, number, section, table
from streamproc.report.words import spent


def fleet_sections(report: FleetReport) -> tuple[Html, ...]:
    """Return header and main part of a report about all runs."""
    state = "halted" if report.halted else "warned" if report.warned else "unremarkable"
    counts = [
        tag("span", f"{report.halted} HALTED" if report.halted else STATES[state], class_=f"badge badge-{state}"),
        tag("span", f"{report.warned} warned"),
        tag("span", f"{plural(report.runs_total, 'run')}, {grouped(report.turns_total)} turns"),
        foreign(report.log, class_="mono") if report.log else NOTHING,
    ]
    header = tag("header", tag("div", *counts, class_="eyebrow"), tag("h1", report.sentence), _total(report))
    reproduce = section("How to see it again", *(tag("pre", one) for one in report.reproduce))
    return header, tag(
        "main", _runs(report), _detectors(report), reproduce, *map(_report, enumerate(report.reports, 1))
    )


def _total(report: FleetReport) -> Html:
    rest = report.runs_total - report.halted - report.warned
    had = f"{plural(rest, 'run')} had no findings. " if rest else ""
    return tag("p", f"{had}In all: {spent(report.total)}.", class_="lead")


def _runs(report: FleetReport) -> Html:
    rows = [TableRow(list(_run(one)), mark=one.state == "halted") for one in report.runs]
    heads = ["Run", "State", "What happened", "Turns", "Wasted turns", "Wasted tokens", "Wasted USD"]
    legend = (
        muted("Wasted is what a halted run took from the turn on at which its loop began.")
        if report.halted
        else NOTHING
    )
    more = muted(f"… {plural(report.runs_left_out, 'run')} without findings or with less after the onset left out")
    bar = filter_bar("Filter runs", "only halted") if len(rows) > LONG_TABLE else NOTHING
    return section("Runs, stuck ones first", legend, bar, table(heads, rows), more if report.runs_left_out else NOTHING)


def _run(one: RunRow) -> list[Any]:
    name: Html = foreign(one.run_id, class_="mono")
    if one.place:
        name = tag("a", name, href=f"#run-{one.place}")
    about = [foreign(text) for text in (one.name, one.workflow, clock(one.at)[:16]) if text]
    if about:
        name = Html().join([name, tag("br"), tag("small", Html(", ").join(about))])
    what: Html = NOTHING
    if one.code:
        what = Html().join([foreign(one.sentence), " ", tag("small", f"{one.code} at turn {one.decided}")])
    wasted = one.after_onset if one.state == "halted" else SpendShown()
    state = {"halted": "sev-halt", "warned": "sev-warn"}.get(one.state, "muted")
    return [
        Cell(name, "wide"),
        Cell(tag("span", "no findings" if one.state == "unremarkable" else one.state, class_=state), "tight"),
        Cell(what, "wide"), number(grouped(one.turns)), number(grouped(wasted.turns) if wasted.turns else "—"),
        number(short(wasted.tokens) if wasted.tokens else "—"),
        number(usd(wasted.cost_usd_micro) if wasted.cost_usd_micro else "—"),
    ]  # fmt: skip


def _detectors(report: FleetReport) -> Html:
    rows = [
        TableRow([tag("code", one.code), one.name.replace("_", " "), number(one.runs_halted), number(one.runs_warned),
                  number(one.decisions)])
        for one in report.detectors
    ]  # fmt: skip
    heads = ["Code", "Detector", "Runs halted", "Runs warned", "Decisions"]
    return section("By detector", table(heads, rows)) if rows else NOTHING


def _report(numbered: tuple[int, RunReport]) -> Html:
    place, report = numbered
    back = tag("p", tag("a", "Back to all runs", href="#"), class_="muted")
    return tag("article", heading(report, level="h2"), *run_sections(report, f"run-{place}-"), back,
               class_="run-report", id=f"run-{place}")  # fmt: skip
