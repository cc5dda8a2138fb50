"""``streamproc plan``: how large a deployment must be for a load, and what breaks first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.options import Quiet
from streamproc.cli.output import OutputFile, output_to
from streamproc.cli.terminal import clean, examples, fail, json_line, say

if TYPE_CHECKING:
    from streamproc.cli.capacity import Plan

app = typer.Typer()

Listeners = Annotated[
    float, typer.Option(help="Processes with a HaltListener. Default: one for 100 runs.", show_default=False)
]
Figures = Annotated[
    str | None,
    typer.Option(
        help="Figures of your machine: a file of `make bench ARGS='--json FILE'`. Default: docs/performance.md."
    ),
]
SMALLEST = 1e-9  # of what must be above 0; a quotient would overflow far below
LABEL = 25  # columns of a line's name
REMEDY_SHARE = 0.5  # of a limit, above which the way around it is shown


@app.command(
    epilog=examples(
        "streamproc plan --runs 1000 --turns-per-second 100",
        "streamproc plan --runs 1e7 --turns-per-second 1e6 --store rocksdb --figures measured.json --json",
    )
)
def plan(
    runs: Annotated[float, typer.Option(help="Runs that are in progress at a time.")],
    turns_per_second: Annotated[float, typer.Option(help="Turns of all runs together, on average.")],
    turns_per_run: Annotated[float, typer.Option(help="Turns of a run from its start to its end.")] = 30,
    listeners: Listeners = 0,
    store: Annotated[Literal["memory", "rocksdb"], typer.Option(help="Where workers keep runs.")] = "memory",
    utilisation: Annotated[
        float, typer.Option(help="Share of its most that a worker or broker does, 0.05 to 0.95.")
    ] = 0.5,
    replicas: Annotated[int, typer.Option(help="Replicas of each topic.")] = 3,
    figures: Figures = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in bytes and seconds.")] = False,
    output: OutputFile = None,
    _quiet: Quiet = False,
) -> None:
    """Calculate partitions, workers, brokers, memory, disk and network for a load, and the times of recovery.

    The figures are measured on one machine; what is extrapolated from them is marked.
    """
    from streamproc.cli.capacity import Load, plan_for
    from streamproc.cli.measured_figures import figures_of
    from streamproc.settings import load_settings

    for name, value in (
        ("--runs", runs), ("--turns-per-second", turns_per_second), ("--turns-per-run", turns_per_run),
        ("--replicas", replicas), ("--listeners", listeners or 1),
    ):  # fmt: skip
        if not SMALLEST <= value <= 1e15:
            raise fail(f"{name} is {value:g}, but must be above 0, {SMALLEST:g} or more, and at most 1e15")
    if not 0.05 <= utilisation <= 0.95:
        raise fail(f"--utilisation is {utilisation:g}, but must be between 0.05 and 0.95: a share of the most")
    kept = load_settings()
    load = Load(
        runs, turns_per_second, turns_per_run, listeners or -(-runs // 100), store == "rocksdb", utilisation, replicas,
        kept.status_finished_hours, kept.status_days,
    )  # fmt: skip
    sourced = figures_of(figures)
    found = plan_for(load, sourced.figures)
    with output_to(output):
        if as_json:
            import orjson

            shown = {
                "load": load._asdict(), "figures": sourced.figures, "figures_from": sourced.source,
                "plan": [row._asdict() for row in found.rows],
                "bounds": [bound._asdict() | {"share": bound.share} for bound in found.bounds],
                "extrapolated": found.extrapolated,
            }  # fmt: skip
            json_line(orjson.dumps(shown).decode())
            return
        for text in (*_lines(found), f"figures: {clean(sourced.source)}"):
            say(text, LABEL)


def _lines(found: Plan) -> Iterator[str]:
    from streamproc.cli.capacity import thousands

    for row in found.rows:
        if row.value:
            yield f"{row.name:<{LABEL}}{_shown(row.value, row.unit):>12}  {row.why}".rstrip()
    yield ""
    yield "what breaks first, as a share of what is possible"
    for bound in found.bounds:
        share = "<1%" if bound.share < 0.01 else f"{bound.share:.0%}" if bound.share < 10 else f"{bound.share:.0f}x"
        yield f"{share:>8}  {thousands(bound.needs)} of {thousands(bound.allows)} {bound.what}"
        if bound.share > REMEDY_SHARE:
            yield f"{'':>8}  {bound.remedy}"
    yield ""
    yield "extrapolated"
    for text in found.extrapolated:
        yield f"  {text}"


def _shown(value: float, unit: str) -> str:
    """Format a value in the largest unit of which there is one, or of times, of which there are two."""
    from streamproc.cli.capacity import thousands

    sizes = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    times = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0))
    if not unit:
        return thousands(value)
    least = 2 if unit == "s" else 1
    for name, size in times if unit == "s" else sizes:
        if value >= least * size:
            return f"{thousands(value / size)} {name}{unit.removeprefix('bytes').removeprefix('s')}"
    return f"{value:.3g} {unit}"
