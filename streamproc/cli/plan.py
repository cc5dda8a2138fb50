"""``streamproc plan``: how large a deployment must be for a load, and what breaks first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.options import Quiet
from streamproc.cli.output import OutputFile, output_to
from streamproc.cli.terminal import clean, examples, fail, json_line, say

if TYPE_CHECKING:
    from streamproc.cli.capacity import CapacityPlan, Cluster, FleetLoad

app = typer.Typer()

Listeners = Annotated[
    float, typer.Option(help="Processes with a HaltListener. Default: one for 100 runs.", show_default=False)
]
FinishedHours = Annotated[
    float | None,
    typer.Option(help="Retention of finished runs' statuses. Default: STREAMPROC_STATUS_FINISHED_HOURS (24)."),
]
StatusDays = Annotated[
    float | None, typer.Option(help="Retention of all other statuses. Default: STREAMPROC_STATUS_DAYS (30).")
]
HaltedShare = Annotated[
    float, typer.Option(help="Share of the runs that are halted, or end without `run.finished`, 0 to 1.")
]
Figures = Annotated[
    str | None,
    typer.Option(
        help="Figures of your machine: a file of `make bench ARGS='--json FILE'`. Default: docs/performance.md."
    ),
]

Row = tuple[str, float | str, str]  # of the table: a name, its value, and why

SMALLEST = 1e-9  # of what must be above 0; a quotient would overflow far below
LABEL = 22  # columns of a line's name
REMEDY_SHARE = 0.5  # of a limit, above which the way around it is shown


@app.command(
    epilog=examples(
        "streamproc plan --runs 1000 --turns-per-second 100",
        "streamproc plan --runs 100000 --turns-per-second 10000 --listeners 200 --kill 2 --outage-minutes 30",
        "streamproc plan --runs 1e7 --turns-per-second 1e6 --store rocksdb --figures measured.json --json",
    )
)
def plan(
    runs: Annotated[float, typer.Option(help="Runs that are in progress at a time.")],
    turns_per_second: Annotated[float, typer.Option(help="Turns of all runs together, on average.")],
    turns_per_run: Annotated[float, typer.Option(help="Turns of a run from its start to its end.")] = 30,
    listeners: Listeners = 0,
    turns_per_request: Annotated[float, typer.Option(help="Turns that a publisher sends together.")] = 1,
    status_finished_hours: FinishedHours = None,
    status_days: StatusDays = None,
    halted_share: HaltedShare = 0.02,
    kill: Annotated[int, typer.Option(help="Workers that die at once, for the time until all turns are stepped.")] = 1,
    outage_minutes: Annotated[float, typer.Option(help="How long all workers are down, for the time after it.")] = 10,
    store: Annotated[Literal["memory", "rocksdb"], typer.Option(help="Where workers keep runs.")] = "memory",
    utilisation: Annotated[
        float, typer.Option(help="Share of its most that a worker or broker does, 0.05 to 0.95.")
    ] = 0.5,
    replicas: Annotated[int, typer.Option(help="Replicas of each topic.")] = 3,
    broker_cores: Annotated[float, typer.Option(help="Cores of a broker.")] = 16,
    broker_mb_per_second: Annotated[float, typer.Option(help="MB/s that a broker receives and sends.")] = 750,
    broker_tb: Annotated[float, typer.Option(help="TB that Kafka may fill on a broker.")] = 16,
    broker_partitions: Annotated[int, typer.Option(help="Partitions of a broker, leaders and followers.")] = 4_000,
    figures: Figures = None,
    figure: Annotated[
        list[str] | None, typer.Option(help="One figure as NAME=VALUE; may be repeated. --json names all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, in bytes and seconds.")] = False,
    output: OutputFile = None,
    _quiet: Quiet = False,
) -> None:
    """Calculate partitions, workers, brokers, memory, disk and network for a load, and the times of recovery.

    The figures are measured on one machine; what is extrapolated from them is marked.
    """
    from streamproc.cli.capacity import CapacityPlan, Cluster, FleetLoad
    from streamproc.cli.measured_figures import figures_of
    from streamproc.settings import load_settings

    positive = {
        "--runs": runs, "--turns-per-second": turns_per_second, "--turns-per-run": turns_per_run,
        "--turns-per-request": turns_per_request, "--replicas": replicas, "--broker-cores": broker_cores,
        "--broker-mb-per-second": broker_mb_per_second, "--broker-tb": broker_tb,
        "--broker-partitions": broker_partitions,
    }  # fmt: skip
    kept = load_settings(status_finished_hours=status_finished_hours, status_days=status_days)
    _check(positive, {"--listeners": listeners, "--kill": kill, "--outage-minutes": outage_minutes})
    if not 0.05 <= utilisation <= 0.95:
        raise fail(f"--utilisation is {utilisation:g}, but must be between 0.05 and 0.95: a share of the most")
    if not 0 <= halted_share <= 1:
        raise fail(f"--halted-share is {halted_share:g}, but must be between 0 and 1: a share of the runs")
    load = FleetLoad(
        _whole("--runs", runs), turns_per_second, turns_per_run,
        _whole("--listeners", listeners) or -(-int(runs) // 100), turns_per_request, kept.status_finished_hours,
        kept.status_days, halted_share, kill, outage_minutes * 60,
    )  # fmt: skip
    cluster = Cluster(
        store, utilisation, replicas, broker_cores, broker_mb_per_second * 1e6, broker_tb * 1e12, broker_partitions
    )
    sourced = figures_of(figures, figure or ())
    try:
        found = CapacityPlan(load, cluster, sourced.figures)
    except ValueError as problem:
        raise fail(f"--kill {kill}: {problem}. Give fewer, or a larger load") from None
    with output_to(output):
        if as_json:
            import orjson

            given = {"load": asdict(load), "cluster": asdict(cluster), "figures": asdict(sourced.figures)}
            json_line(orjson.dumps(given | {"figures_from": sourced.source, "plan": found.as_json()}).decode())
            return
        for text in (*_lines(load, cluster, found), f"figures: {clean(sourced.source)}"):
            say(text, LABEL)


def _check(positive: dict[str, float], others: dict[str, float]) -> None:
    for name, value in (positive | others).items():
        if not (value >= SMALLEST if name in positive else value >= 0) or value > 1e15:
            wanted = f"above 0, {SMALLEST:g} or more," if name in positive else "0 or more"
            raise fail(f"{name} is {value:g}, but must be {wanted} and at most 1e15")


def _whole(name: str, value: float) -> int:
    if value != int(value):
        raise fail(f"{name} is {value:g}: give a whole number")
    return int(value)


def _lines(load: FleetLoad, cluster: Cluster, found: CapacityPlan) -> Iterator[str]:
    each_s = load.runs / load.turns_per_second
    yield (
        f"{_count(load.runs)} runs at a time, {_count(load.turns_per_second)} turns/s: a turn of each run every "
        f"{_time(each_s)}, {_count(load.turns_per_run)} turns a run, {_time(each_s * load.turns_per_run)} long"
    )
    yield ""
    for name, value, why in (*_sizes(load, cluster, found), *_times(load, found)):
        yield f"{name:<{LABEL}}{value if isinstance(value, str) else _count(value):>12}  {why}"
    yield ""
    yield "what breaks first, as a share of what is possible"
    for bound in found.bounds:
        yield f"{_share(bound.share):>8}  {_count(bound.needs)} of {_count(bound.allows)} {bound.what}"
        if bound.share > REMEDY_SHARE:
            yield f"{'':>8}  {bound.remedy}"
    yield ""
    yield "extrapolated"
    for text in found.extrapolated:
        yield f"  {text}"


def _sizes(load: FleetLoad, cluster: Cluster, found: CapacityPlan) -> Iterator[Row]:
    finished = found.runs_held - load.runs
    yield "runs held", found.runs_held, f"of them finished within the hour: {_count(finished)}"
    yield "workers", found.workers, _because(found.workers_by)
    sharing = f"{found.turns_per_state:.3g} turns share a written state"
    yield "  turns/s of a core", found.worker_per_s, f"{sharing}; planned to {_share(cluster.utilisation).strip()}"
    yield "  memory", _size(found.worker_memory), f"each, {_size(found.worker_memory * found.workers)} in all"
    if found.worker_disk:
        yield "  disk", _size(found.worker_disk), "each, in RocksDB"
    yield "partitions", found.partitions, "of each topic; they cannot change later"
    yield "brokers", found.brokers, _because(found.brokers_by)
    yield "  written", f"{_size(sum(found.traffic_in.values()))}/s", _parts(found.traffic_in)
    yield "  read", f"{_size(sum(found.traffic_out.values()))}/s", _parts(found.traffic_out)
    yield "  disk", _size(sum(found.disk.values())), f"{_count(cluster.replicas)} replicas: {_parts(found.disk)}"
    decisions = f"of them {_count(found.decisions_per_s)} decisions"
    yield "listeners", load.listeners, f"{_count(found.listener_records)} records/s for each, {decisions}"


def _times(load: FleetLoad, found: CapacityPlan) -> Iterator[Row]:
    records = f"it reads {_count(found.restart_records)} of its {_count(found.changelog_records)} changelog records"
    yield "a worker restarts in", _time(found.restart_s), records
    if found.takeover is not None:
        late, until = found.takeover
        what = f"turns wait for up to {_time(late)}" if until is not None else "the others cannot take over"
        yield f"{_count(load.killed)} killed, over in", _time(until), what
    if found.outage_s is not None:
        down = f"after all workers were down for {_time(load.outage_s)}"
        yield "an outage, over in", _time(found.outage_s), down
    read = f"it reads {_count(found.statuses)} statuses and {_count(found.tombstones)} tombstones"
    yield "a listener starts in", _time(found.listener_start_s), read


def _because(by: dict[str, int]) -> str:
    """List reasons, the deciding one first."""
    ordered = sorted(by.items(), key=lambda one: one[1], reverse=True)
    return "; ".join(f"{name} {_count(count)}" for name, count in ordered)


def _parts(traffic: dict[str, float]) -> str:
    ordered = sorted(traffic.items(), key=lambda one: one[1], reverse=True)
    return ", ".join(f"{name} {size / sum(traffic.values()):.0%}" for name, size in ordered)


def _count(value: float) -> str:
    """Format with three significant digits below 100, whole and grouped above: 0.05, 12.5, 1 250."""
    return f"{value:.3g}" if abs(value) < 100 else f"{_rounded(value):,.0f}".replace(",", " ")


def _rounded(value: float) -> float:
    """Round to three significant digits what is above 100 000: no figure is more exact."""
    return float(f"{value:.3g}") if abs(value) >= 100_000 else round(value)


def _size(value: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value / size < 1_000 else f"{_count(value / size)} {unit}"
    return f"{value:.0f} B"


def _time(seconds: float | None) -> str:
    if seconds is None or seconds == float("inf"):
        return "never"
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{_count(seconds / length)} {unit}"
    return f"{seconds:.3g} s"


def _share(share: float) -> str:
    if share < 0.01:
        return "  <1%"
    return f"{share:>5.0%}" if share < 10 else f"{_count(share):>5}x"
