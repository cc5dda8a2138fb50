"""The figures that `streamproc plan` calculates with: those of docs/performance.md, those of a file that the benchmark
has written, or given ones.

``measured_figures.json`` has the rows of the table in docs/performance.md; docs/generate.py writes it. A file of
``python -m benchmarks --json FILE`` has the same rows by name, of your machine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from streamproc.errors import StreamprocError
from streamproc.model.bounded_file import bounded_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUILT_IN: Final = Path(__file__).with_name("measured_figures.json")
MIB, GIB = 1 << 20, 1 << 30
SMALLEST, LARGEST = 1e-6, 1e15


class UnusableFigures(StreamprocError):
    """A file or a value of figures that cannot be used. The message says where, and what to do."""


@dataclass(frozen=True, slots=True)
class MeasuredFigures:
    """What one worker, one broker and one listener do. All values are above 0."""

    turns_per_second: float
    event_us: float
    turns_per_state: float
    rare_event_us: float
    rare_turns_per_state: float
    state_bytes: float
    run_memory_bytes: float
    worker_memory_bytes: float
    recovered_per_second: float
    turn_bytes: float
    decisions_per_1000_turns: float
    control_bytes: float
    runs_bytes: float
    status_bytes: float
    statuses_per_second: float
    broker_us: float
    broker_publish_us: float
    takeover_s: float
    restart_s: float


class FigureSource(NamedTuple):
    """Where a figure comes from: the name of the benchmark's row, a pattern of its first cell in docs/performance.md,
    the factor from the row's unit to the figure's, and its meaning."""

    field: str
    row: str
    what: str
    factor: float
    meaning: str


SOURCES: Final = (
    FigureSource("turns_per_second", "worker.limit", "worker, all detectors", 1,
                 "turns/s of a worker on a core; 1 000 runs take turns"),
    FigureSource("event_us", "scaling.cpu.1", "one worker, processor time per event", 1,
                 "µs of a worker's processor time for an event; 1 000 runs take turns: many turns share a state"),
    FigureSource("turns_per_state", "scaling.narrow.states", "worker, 1 000 runs .*, turns per written state", 1,
                 "turns of a run that share a written state, in that measurement"),
    FigureSource("rare_event_us", "scaling.wide.cpu", r"worker, \d\d+ 000 runs .*, processor time per event", 1,
                 "the same for many runs that take turns: few turns share a state"),
    FigureSource("rare_turns_per_state", "scaling.wide.states", r"worker, \d\d+ 000 runs .*, turns per written", 1,
                 "turns that share a written state, in that measurement"),
    FigureSource("state_bytes", "scaling.narrow.state", "worker, 1 000 runs .*, changelog per written state", 1,
                 "bytes of a written state in the changelog, as stored by the broker"),
    FigureSource("run_memory_bytes", "state.table", "resident memory of 1 000 000 real runs", GIB / 1_000_000,
                 "resident bytes of a run in a worker"),
    FigureSource("worker_memory_bytes", "recovery.resident", "peak resident memory of that worker", MIB,
                 "peak resident bytes of a worker that has recovered 200 000 runs"),
    FigureSource("recovered_per_second", "recovery", "recovery of 200 000 runs", 1,
                 "records/s of the changelog that a worker recovers"),
    FigureSource("turn_bytes", "scaling.turn", "turns topic, a turn that is published alone", 1,
                 "bytes of a turn on the topic `turns`, one in a batch"),
    FigureSource("decisions_per_1000_turns", "scaling.decisions", "decisions per 1 000 turns", 1,
                 "records on `control` for 1 000 turns of the samples, of which many get stuck"),
    FigureSource("control_bytes", "scaling.control", "control topic per turn", 1, "bytes on `control` for each turn"),
    FigureSource("runs_bytes", "scaling.statuses", "runs topic per turn", 1, "bytes written to `runs` for each turn"),
    FigureSource("status_bytes", "scaling.status", "runs topic, status of a run", 1, "bytes of one record of `runs`"),
    FigureSource("statuses_per_second", "scaling.listener", "listener, statuses read at its start", 1,
                 "records/s of `runs` that a listener reads when it starts"),
    FigureSource("broker_us", "scaling.broker.worker", "broker, processor time per turn for a worker", 1,
                 "µs of the broker's processor time for a turn: fetch, state, decisions"),
    FigureSource("broker_publish_us", "scaling.broker.alone", "broker, processor time for a turn that is published", 1,
                 "µs of the broker's processor time for a turn in a request of its own, without replicas"),
    FigureSource("takeover_s", "failover.standby", "kill -9 .*a second worker is running", 1,
                 "seconds from kill -9 to the successor's first decision, session timeout 10 s"),
    FigureSource("restart_s", "failover.restart", "kill -9 .*restarted under the same name", 1,
                 "the same for a worker that restarts at once under its name"),
)  # fmt: skip
NAMES: Final = tuple(field.name for field in fields(MeasuredFigures))


class Sourced(NamedTuple):
    """Figures, and where they come from, in words."""

    figures: MeasuredFigures
    source: str


def built_in() -> Sourced:
    """Return the figures of docs/performance.md."""
    found = orjson.loads(BUILT_IN.read_bytes())
    return Sourced(MeasuredFigures(**found["figures"]), found["source"])


def figures_of(path: str | None, given: Iterable[str]) -> Sourced:
    """Return the figures of a file over the built-in ones, and ``NAME=VALUE`` texts over both.

    Raises `UnusableFigures`.
    """
    figures, source = built_in()
    if path is not None:
        measured = _measured(path)
        figures = replace(figures, **measured)
        left = len(NAMES) - len(measured)
        source = path if not left else f"{path}, and for {left} of {len(NAMES)} figures {source}"
    overridden = dict(map(_given, given))
    if overridden:
        source = f"{', '.join(sorted(overridden))}: given; the others: {source}"
    return Sourced(replace(figures, **overridden), source)


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
        _positive(f"{path}: {name}", value)
    return found


def _given(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals or name not in NAMES:
        raise UnusableFigures(f"--figure {text}: give NAME=VALUE with one of {', '.join(NAMES)}")
    try:
        return name, _positive(f"--figure {name}", float(value))
    except ValueError:
        raise UnusableFigures(f"--figure {name}: {value!r} is no number. Give it as {name}=1234.5") from None


def _positive(what: str, value: float) -> float:
    if not SMALLEST <= value <= LARGEST:
        raise UnusableFigures(f"{what} is {value:g}, but must be above 0: between {SMALLEST:g} and {LARGEST:g}")
    return value
