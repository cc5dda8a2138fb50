"""The step with a thousand runs that take turns, in the order of a log: read from wire records, decisions included.

Compared with one run after the other on the same records, and with turns after which no detector is asked. Each core
runs in a process of its own, with the worker's garbage collector settings. Records are decoded in slices, and each
slice is stepped, which is what is timed, right after it was decoded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from statistics import median
from typing import Final, NamedTuple

import msgspec

from benchmarks.cores import cores, kind_of, with_core
from benchmarks.fleet_log import copies_of_samples
from benchmarks.runs import Runs
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row, shown
from benchmarks.timing import collector_time, interleaved, piece_us, worker_gc_settings
from benchmarks.traces import BUDGETS
from streamproc.fingerprint import read_event
from streamproc.model import wire
from streamproc.model.wire import Event, RunFinished, Turn

STEP_US_MAX: Final = Aim("≤", 5)
QUIET_US_MAX: Final = Aim("≤", 3)
FLAT_MAX: Final = Aim("≤", 1.15)
SLICE_RECORDS: Final = 100
START_MS: Final = 1_750_000_000_000


class Stored(NamedTuple):
    """A record of the log."""

    run: int
    value: bytes
    at_ms: int


class Read(NamedTuple):
    """A decoded record."""

    run: int
    event: Event
    at_ms: int


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of both cores, or of pure Python if nothing is compiled. The aims are those of a compiled one."""
    size = (sizes.interleaved_runs, max(2, sizes.rounds))
    found = {core: with_core(core, "benchmarks.interleaved", *size) for core in cores()}
    runs = shown(sizes.interleaved_runs)
    for core, figures in found.items():
        ours, kind = core == "compiled", kind_of(core)
        us = {name: min(values) for name, values in figures.items()}
        flat = median(many / one for many, one in zip(figures["interleaved"], figures["sequential"], strict=True))
        yield Row(
            f"core.interleaved.{core}", f"step, {runs} runs interleaved, decisions included, {kind}",
            us["interleaved"], "µs/event", aim=STEP_US_MAX if ours else None,
            note=f"decoding the record, {us['decode']:.1f} µs, comes on top",
        )  # fmt: skip
        yield Row(
            f"core.budgets.{core}", f"the same, each run with all budgets declared, {kind}", us["budgets"], "µs/event",
            aim=STEP_US_MAX if ours else None, note="detectors of budgets are asked each turn",
        )  # fmt: skip
        yield Row(
            f"core.quiet.{core}", f"step, {runs} runs interleaved, turns after which no detector is asked, {kind}",
            us["quiet"], "µs/turn", aim=QUIET_US_MAX if ours else None, note=f"{us['quiet_share']:.0%} of the turns",
        )  # fmt: skip
        yield Row(
            f"core.runs_flat.{core}", f"step, {runs} runs interleaved, {kind}", us["interleaved"], "µs/event",
            "one run after the other", us["sequential"], flat, FLAT_MAX if ours else None,
        )  # fmt: skip


def figures(runs: int, rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of each round with the core of this process, and the share of quiet turns."""
    by_run, budgeted = _records(runs, {}), _records(runs, BUDGETS)
    in_turn, all_budgets = _in_turn(by_run), _in_turn(budgeted)
    one_by_one = list(chain.from_iterable(by_run))
    decisions, quiet = _decided(in_turn)
    if _decided(one_by_one)[0] != decisions or not decisions:
        raise BenchmarkDefect("the decisions depend on the order in which runs take turns")
    turns = sum(map(len, by_run)) - len(by_run)
    contenders: dict[str, Callable[[], float]] = {
        "budgets": lambda: _us(all_budgets),
        "interleaved": lambda: _us(in_turn),
        "sequential": lambda: _us(one_by_one),
        "quiet": lambda: _quiet_us(by_run, quiet),
        "decode": lambda: _decode_us(in_turn),
        "quiet_share": lambda: len(quiet) / turns,
    }
    with collector_time(), worker_gc_settings():
        return interleaved(contenders, rounds)


def _records(runs: int, budgets: Mapping[str, int]) -> list[list[Stored]]:
    """Return the start and the turns of each run, which declares these budgets."""
    found = []
    for number, copy in enumerate(islice(copies_of_samples(START_MS), runs)):
        started, *turns = (event for event in copy if type(event) is not RunFinished)
        events = [msgspec.structs.replace(started, budgets=budgets), *turns]
        found.append([Stored(number, wire.encode(one), START_MS + 1_000 * at) for at, one in enumerate(events)])
    return found


def _in_turn(by_run: Sequence[Sequence[Stored]]) -> list[Stored]:
    """Return the records in the order of a log: round after round, each run's next one."""
    return [one for each in zip_longest(*by_run) for one in each if one is not None]


def _decided(records: Sequence[Stored]) -> tuple[set[str], set[tuple[int, int]]]:
    """Return the ids of all decisions, and the quiet turns by run and log time: those after which none is asked."""
    runs = Runs()
    ids: set[str] = set()
    quiet: set[tuple[int, int]] = set()
    for run, value, at_ms in records:
        event = read_event(value)
        ids.update(one.id for one in runs.step(run, event, at_ms))
        if type(event) is Turn and not runs.engine.view.kinds:
            quiet.add((run, at_ms))
    return ids, quiet


def _us(records: Sequence[Stored]) -> float:
    """Return the microseconds per event of a pass over all records."""
    runs, taken = Runs(), 0.0
    for start in range(0, len(records), SLICE_RECORDS):
        taken += _piece(runs, records[start : start + SLICE_RECORDS])
    return taken / len(records)


def _decode_us(records: Sequence[Stored]) -> float:
    """Return the microseconds to decode a record, which is what the others leave out."""

    def work(records: Sequence[Stored]) -> None:
        for record in records:
            read_event(record.value)

    return piece_us(work, records, len(records))


def _quiet_us(by_run: Sequence[Sequence[Stored]], quiet: set[tuple[int, int]]) -> float:
    """Return the microseconds per quiet turn. Each run in turn steps its next record: first all that are quiet, timed,
    then the others. Runs are independent, so each makes the decisions that it would make anyway."""
    runs, taken, count = Runs(), 0.0, 0
    places = [0] * len(by_run)
    while any(place < len(records) for place, records in zip(places, by_run, strict=True)):
        for wanted in (True, False):
            piece = []
            for run, records in enumerate(by_run):
                record = records[places[run]] if places[run] < len(records) else None
                if record is not None and ((run, record.at_ms) in quiet) is wanted:
                    piece.append(record)
                    places[run] += 1
            for start in range(0, len(piece), SLICE_RECORDS):
                us = _piece(runs, piece[start : start + SLICE_RECORDS])
                taken += us if wanted else 0
            count += len(piece) if wanted else 0
    return taken / max(1, count)


def _piece(runs: Runs, records: Sequence[Stored]) -> float:
    """Decode a slice, then step it; return the microseconds of stepping all of it."""
    step = runs.step

    def work(events: Sequence[Read]) -> None:
        for run, event, at_ms in events:
            step(run, event, at_ms)

    return piece_us(work, [Read(run, read_event(value), at_ms) for run, value, at_ms in records], 1)


def main() -> None:
    """``python -m benchmarks.interleaved RUNS ROUNDS``."""
    runs, rounds = map(int, sys.argv[1:])
    print(json.dumps(figures(runs, rounds)))


if __name__ == "__main__":
    main()
