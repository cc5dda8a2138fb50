"""The core: microseconds per turn in short, long and very long runs, compared with detectors that rescan a list.

Only the step is timed, with reading and writing the state that is kept: turns are decoded beforehand, and the run has
declared budgets, which enables every detector.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from benchmarks.interleaved import rows as interleaved_rows
from benchmarks.rescans import LastTen, WholeHistory
from benchmarks.runs import Runs
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row, shown
from benchmarks.timing import best_median, collector_time, in_pieces, piece_us
from benchmarks.traces import Logged, made_up_turns, real_turns, run_of, started
from streamproc.model.wire import Turn

CORE_US_MAX: Final = Aim("≤", 5)  # of a real run; made-up turns carry every kind of evidence
COMPILED_MAX: Final = Aim("≤", 0.5)  # of the time of pure Python
FLAT_MAX: Final = Aim("≤", 1.15)
PIECE_TURNS: Final = 500
SHORT: Final = 10

TRACES: Final[dict[str, Callable[[str, int], Iterator[Logged]]]] = {"real": real_turns, "made-up": made_up_turns}


class Measured(NamedTuple):
    """Rounds of pieces, in microseconds per turn, and the garbage collector's share of the time."""

    rounds: list[list[float]]
    collector: float

    @property
    def us(self) -> float:
        """Microseconds per turn: the median of the best round."""
        return best_median(self.rounds)


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the core."""
    yield from interleaved_rows(sizes)
    for name, source in TRACES.items():
        trace = run_of(sizes.run_turns_max, source("bench", 7))
        short = _short_runs(trace, sizes)
        lengths = sorted({min(1_000, sizes.run_turns_max), sizes.run_turns_max})
        measured = {SHORT: short} | {length: _long_run(trace[:length], sizes) for length in lengths}
        for length, found in measured.items():
            yield Row(
                f"core.{name}.{length}", f"core, {name} run of {shown(length)} turns", found.us, "µs/turn",
                aim=CORE_US_MAX if name == "real" else None,
                note=f"garbage collector {found.collector:.1%} of the time",
            )  # fmt: skip
        longest = measured[lengths[-1]]
        yield _flatness(name, longest)
        yield from _compared_with_rescans(name, trace, longest.us, sizes)


def start(runs: Runs, key: Hashable) -> None:
    """Start a run that declares budgets, which are checked each turn."""
    runs.step(key, *started("bench", 1_749_999_999_000))


def one_run_us(name: str, turns: int, sizes: Sizes) -> float:
    """Return the microseconds per turn of one run, with the core of this process."""
    return _long_run(run_of(turns, TRACES[name]("bench", 7)), sizes).us


def _short_runs(trace: Sequence[Logged], sizes: Sizes) -> Measured:
    """Measure many runs of ten turns."""
    pieces = in_pieces(in_pieces(trace[:10_000], SHORT), PIECE_TURNS // SHORT)
    rounds = []
    with collector_time() as collector:
        for _ in range(sizes.rounds):
            runs = Runs()
            keyed = [[((at, number), run) for number, run in enumerate(piece)] for at, piece in enumerate(pieces)]
            for piece in keyed:
                for key, _ in piece:
                    start(runs, key)
            rounds.append([_piece_us(runs, piece) for piece in keyed])
    return Measured(rounds, collector.share)


def _long_run(trace: Sequence[Logged], sizes: Sizes) -> Measured:
    """Measure one run, in pieces."""
    pieces = in_pieces(trace, PIECE_TURNS)
    rounds = []
    with collector_time() as collector:
        for _ in range(sizes.rounds):
            runs = Runs()
            start(runs, 0)
            rounds.append([_piece_us(runs, [(0, piece)]) for piece in pieces])
            if runs.turns(0) != sum(map(len, pieces)):
                raise BenchmarkDefect(f"the core applied {runs.turns(0)} of {len(trace)} turns")
    return Measured(rounds, collector.share)


Piece = Sequence[tuple[Hashable, Sequence[Logged]]]


def _piece_us(runs: Runs, piece: Piece) -> float:
    step = runs.step

    def work(piece: Piece) -> None:
        for key, run in piece:
            for event, at_ms in run:
                step(key, event, at_ms)

    return piece_us(work, piece, sum(len(run) for _, run in piece))


def _flatness(name: str, longest: Measured) -> Row:
    """Compare the last tenth of the longest run with its first: the time per turn must not grow."""
    tenth = max(1, len(longest.rounds[0]) // 10)
    late = best_median([pieces[-tenth:] for pieces in longest.rounds])
    early = best_median([pieces[:tenth] for pieces in longest.rounds])
    return Row(
        f"core.{name}.flat", f"core, last tenth of the longest {name} run", late, "µs/turn",
        "its first tenth", early, aim=FLAT_MAX,
    )  # fmt: skip


def _compared_with_rescans(name: str, trace: list[Logged], core_us: float, sizes: Sizes) -> Iterator[Row]:
    turns = [event for event, _ in trace if isinstance(event, Turn)]
    last_ten = best_median([_last_ten(turns) for _ in range(sizes.rounds)])
    what = f"core, {name} run of {shown(len(turns))} turns"
    yield Row(f"core.{name}.last_ten", what, core_us, "µs/turn", "one rule: 3 of the last 10 calls", last_ten)
    whole = _whole_history(turns, sizes.rescans)
    yield Row(f"core.{name}.whole_history", what, core_us, "µs/turn", "4 rules, rescanning the whole history", whole)


def _last_ten(turns: list[Turn]) -> list[float]:
    peer = LastTen()

    def work(turns: Sequence[Turn]) -> None:
        for turn in turns:
            peer.step(turn)

    return [piece_us(work, piece, len(piece)) for piece in in_pieces(turns, PIECE_TURNS)]


def _whole_history(turns: list[Turn], samples: int) -> float:
    """Return the mean over evenly spaced turns of the run: all 100 000 turns would take minutes."""
    taken = []
    for number in range(samples):
        place = int(len(turns) * (number + 0.5) / samples)
        peer = WholeHistory()
        peer.remember(turns[:place])
        taken.append(piece_us(peer.step, turns[place], 1))
    return sum(taken) / len(taken)
