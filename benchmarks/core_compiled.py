"""The compiled core compared with pure Python: the same turns, in separate processes, in alternating rounds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Final

from benchmarks import core_speed
from benchmarks.cores import cores, with_core
from benchmarks.sizes import QUICK, Sizes
from benchmarks.table import Row, shown
from benchmarks.timing import interleaved

TURNS_MAX: Final = 10_000


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the compiled core; none if it was not compiled."""
    if "compiled" not in cores():
        return
    turns = min(TURNS_MAX, sizes.run_turns_max)
    for name in core_speed.TRACES:
        figures = interleaved(
            {core: partial(with_core, core, "benchmarks.core_compiled", name, turns) for core in cores()}, sizes.rounds
        )
        ratios = [ours / theirs for ours, theirs in zip(figures["compiled"], figures["python"], strict=True)]
        yield Row(
            f"core.{name}.compiled", f"core, compiled, {name} run of {shown(turns)} turns", min(figures["compiled"]),
            "µs/turn", "pure Python", min(figures["python"]), median(ratios), aim=core_speed.COMPILED_MAX,
        )  # fmt: skip


if __name__ == "__main__":
    print(core_speed.one_run_us(sys.argv[1], int(sys.argv[2]), QUICK))
