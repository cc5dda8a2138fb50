"""The cost of a run's state: encoded bytes, bytes in memory, and microseconds to encode and decode it.

Real runs are measured at their ends. Made-up runs with every kind of evidence, and one very long run, are measured
along the way and show how far the caps let a state grow.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

from benchmarks.core_speed import start
from benchmarks.machine import ROOT
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import best_median, in_pieces, percentile, piece_us
from benchmarks.traces import made_up_turns, real_turns, run_of, sample_runs
from streamproc.core.run_state import RunState, dump, load
from streamproc.policy import load_policy

STATE_BYTES_MAX: Final = Aim("≤", 4_096)
PIECE_STATES: Final = 100
T = TypeVar("T")


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the states."""
    real = real_states()
    encoded = [len(dump(state)) for state in real]
    worst = max(_sizes_along_the_way(sizes))
    yield Row("state.median", "state of a real run, encoded, median", median(encoded), "bytes", aim=STATE_BYTES_MAX)
    yield Row("state.p99", "state of a real run, encoded, p99", percentile(encoded, 0.99), "bytes", aim=STATE_BYTES_MAX)
    yield Row(
        "state.max", "state of a made-up run with all evidence, encoded, maximum", worst, "bytes", aim=STATE_BYTES_MAX
    )
    yield Row("state.resident", "resident memory of a real run, decoded", _resident(sizes.resident_runs), "bytes")
    states = real * max(1, 2 * PIECE_STATES // len(real))
    raws = [dump(state) for state in states]
    if [dump(load(raw)) for raw in raws] != raws:
        raise BenchmarkDefect("encoding and decoding changes a state")
    yield Row("state.encode", "encoding a real run's state", _each_us(dump, states, sizes), "µs")
    yield Row("state.decode", "decoding that state", _each_us(load, raws, sizes), "µs")


def real_states() -> list[RunState]:
    """Return the final states of the sample runs."""
    engine = load_policy().engine()
    states = []
    for run in sample_runs():
        state = start(engine)
        for event, at_ms in run:
            engine.apply(state, event, at_ms)
        states.append(state)
    return states


def _sizes_along_the_way(sizes: Sizes) -> Iterator[int]:
    """Yield the encoded size after every 20th turn, of made-up runs and of a long real one."""
    engine = load_policy().engine()
    length = min(2_000, sizes.run_turns_max)
    traces = [run_of(length, made_up_turns("bench", seed)) for seed in range(3)]
    for trace in [*traces, run_of(length, real_turns("bench", 3))]:
        state = start(engine)
        for number, (event, at_ms) in enumerate(trace):
            engine.apply(state, event, at_ms)
            if number % 20 == 0:
                yield len(dump(state))


def _each_us(work: Callable[[T], object], items: list[T], sizes: Sizes) -> float:
    def all_of(piece: Sequence[T]) -> None:
        for item in piece:
            work(item)

    pieces = in_pieces(items, PIECE_STATES)
    rounds = max(5, sizes.rounds)
    return best_median([[piece_us(all_of, piece, len(piece)) for piece in pieces] for _ in range(rounds)])


def _resident(runs: int) -> float:
    """Return the bytes per run, measured in a separate process."""
    command = [sys.executable, "-m", "benchmarks.state_size", str(runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _pages() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4_096


def main() -> None:
    """Hold the given number of runs and print the resident bytes per run."""
    wanted = int(sys.argv[1])
    real_states()  # allocate what is allocated only once
    gc.collect()
    before = _pages()
    held: list[RunState] = []
    while len(held) < wanted:
        held += real_states()
    gc.collect()
    print((_pages() - before) / len(held))


if __name__ == "__main__":
    main()
