"""The figures of `streamproc plan`: those of benchmarks/README.md, or of a file that the benchmark has
written.

``measured_figures.json`` has the rows of the table in benchmarks/README.md; docs/generate.py writes it. A file of
``python -m benchmarks --json FILE`` has the same rows by name, of your machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from streamproc.errors import StreamprocError
from streamproc.model.bounded_file import bounded_bytes

BUILT_IN: Final = Path(__file__).with_name("measured_figures.json")
MIB, GIB = 1 << 20, 1 << 30
SMALLEST, LARGEST = 1e-6, 1e15


class UnusableFigures(StreamprocError):
    """A file of figures that cannot be used. The message says where, and what to do."""


def _figure(row: str, what: str, factor: float = 1) -> float:
    """A figure that the benchmark measures: the name of its row, a pattern of the row's first cell in
    benchmarks/README.md, and the factor from the row's unit to the figure's."""
    return field(metadata={"source": (row, what, factor)})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class MeasuredFigures:
    """What one worker, one broker and one listener do. All values are above 0."""

    turns_per_second: float = _figure("worker.limit", "worker, all detectors")
    """turns/s of a worker on a core; 1 000 runs take turns"""
    event_us: float = _figure("scaling.cpu.1", "one worker, processor time per event")
    """µs of a worker's processor time for an event; 1 000 runs take turns: many turns share a state"""
    turns_per_state: float = _figure("scaling.narrow.states", "worker, 1 000 runs .*, turns per written state")
    """turns of a run that share a written state, in that measurement"""
    rare_event_us: float = _figure("scaling.wide.cpu", r"worker, \d\d+ 000 runs .*, processor time per event")
    """the same for many runs that take turns: few turns share a state"""
    rare_turns_per_state: float = _figure("scaling.wide.states", r"worker, \d\d+ 000 runs .*, turns per written")
    """turns that share a written state, in that measurement"""
    state_bytes: float = _figure("scaling.narrow.state", "worker, 1 000 runs .*, changelog per written state")
    """bytes of a written state in the changelog, as stored by the broker"""
    run_memory_bytes: float = _figure("state.table", "resident memory of 1 000 000 real runs", GIB / 1_000_000)
    """resident bytes of a run in a worker"""
    worker_memory_bytes: float = _figure("recovery.resident", "peak resident memory of that worker", MIB)
    """peak resident bytes of a worker that has recovered 200 000 runs"""
    recovered_per_second: float = _figure("recovery", "recovery of 200 000 runs")
    """records/s of the changelog that a worker recovers"""
    turn_bytes: float = _figure("scaling.turn", "turns topic, a turn that is published alone")
    """bytes of a turn on the topic `turns`, one in a batch"""
    decisions_per_1000_turns: float = _figure("scaling.decisions", "decisions per 1 000 turns")
    """records on `control` for 1 000 turns of the samples, of which many get stuck"""
    control_bytes: float = _figure("scaling.control", "control topic per turn")
    """bytes on `control` for each turn"""
    runs_bytes: float = _figure("scaling.statuses", "runs topic per turn")
    """bytes written to `runs` for each turn"""
    status_bytes: float = _figure("scaling.status", "runs topic, status of a run")
    """bytes of one record of `runs`"""
    statuses_per_second: float = _figure("scaling.listener", "listener, statuses read at its start")
    """records/s of `runs` that a listener reads when it starts"""
    broker_us: float = _figure("scaling.broker.worker", "broker, processor time per turn for a worker")
    """µs of the broker's processor time for a turn: fetch, state, decisions"""
    broker_publish_us: float = _figure("scaling.broker.alone", "broker, processor time for a turn that is published")
    """µs of the broker's processor time for a turn in a request of its own, without replicas"""
    takeover_s: float = _figure("failover.standby", "kill -9 .*a second worker is running")
    """seconds from kill -9 to the successor's first decision, session timeout 10 s"""
    restart_s: float = _figure("failover.restart", "kill -9 .*restarted under the same name")
    """the same for a worker that restarts at once under its name"""


class FigureSource(NamedTuple):
    """Where a figure comes from (see `_figure`)."""

    field: str
    row: str
    what: str
    factor: float


SOURCES: Final = tuple(FigureSource(one.name, *one.metadata["source"]) for one in fields(MeasuredFigures))
NAMES: Final = tuple(one.field for one in SOURCES)


class Sourced(NamedTuple):
    """Figures, and where they come from, in words."""

    figures: MeasuredFigures
    source: str


def built_in() -> Sourced:
    """Return the figures of docs/performance.md."""
    found = orjson.loads(BUILT_IN.read_bytes())
    return Sourced(MeasuredFigures(**found["figures"]), found["source"])


def figures_of(path: str | None) -> Sourced:
    """Return the figures of a file over the built-in ones. Raises `UnusableFigures`."""
    figures, source = built_in()
    if path is None:
        return Sourced(figures, source)
    measured = _measured(path)
    left = len(NAMES) - len(measured)
    return Sourced(
        replace(figures, **measured), path if not left else f"{path}, and for {left} of {len(NAMES)} figures {source}"
    )


def rows_as_figures(rows: Mapping[str, tuple[float, str]]) -> dict[str, float]:
    """Return the figures among rows of the benchmark: by name, each with its value and its words."""
    found = {}
    for one in SOURCES:
        value, what = rows.get(one.row, (0.0, ""))
        # A quick measurement recovers fewer runs, and the plan subtracts the memory of 200 000.
        fits = one.row not in ("recovery", "recovery.resident") or "200 000" in rows.get("recovery", (0.0, ""))[1]
        if what and fits:
            found[one.field] = value * one.factor
    return found


def _measured(path: str) -> dict[str, float]:
    try:
        rows: list[dict[str, Any]] = orjson.loads(bounded_bytes(path))
        found = rows_as_figures({row["name"]: (float(row["figure"]), row["what"]) for row in rows})
    except OSError as problem:
        raise UnusableFigures(f"{path}: {problem.strerror}. Name a file of `make bench ARGS='--json FILE'`") from None
    except (ValueError, TypeError, KeyError):
        raise UnusableFigures(f"{path}: no rows of a benchmark. Write it by `make bench ARGS='--json FILE'`") from None
    if not found:
        raise UnusableFigures(f"{path}: none of its rows is used here. Measure at least --only worker,recovery,scaling")
    for name, value in found.items():
        if not SMALLEST <= value <= LARGEST:
            raise UnusableFigures(
                f"{path}: {name} is {value:g}, but must be above 0: between {SMALLEST:g} and {LARGEST:g}"
            )
    return found
