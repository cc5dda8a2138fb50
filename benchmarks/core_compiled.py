"""The compiled core compared with pure Python: the same turns, in separate processes, in alternating rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Final

from benchmarks import core_speed
from benchmarks.machine import ROOT
from benchmarks.sizes import QUICK, Sizes
from benchmarks.table import BenchmarkDefect, Row, shown
from benchmarks.timing import interleaved
from streamproc.core.compiled import FOLDER, MANIFEST

TURNS_MAX: Final = 10_000


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the compiled core; none if it was not compiled."""
    if not (FOLDER / MANIFEST).exists():
        return
    turns = min(TURNS_MAX, sizes.run_turns_max)
    for name in core_speed.TRACES:
        figures = interleaved({core: partial(_us, core, name, turns) for core in ("python", "compiled")}, sizes.rounds)
        ratios = [ours / theirs for ours, theirs in zip(figures["compiled"], figures["python"], strict=True)]
        yield Row(
            f"core.{name}.compiled", f"core, compiled, {name} run of {shown(turns)} turns", min(figures["compiled"]),
            "µs/turn", "pure Python", min(figures["python"]), median(ratios), aim=core_speed.COMPILED_MAX,
        )  # fmt: skip


def _us(core: str, name: str, turns: int) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.core_compiled", name, str(turns)],
        cwd=ROOT, env=os.environ | {"STREAMPROC_CORE": core}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BenchmarkDefect(f"the {core} core failed: {done.stderr[-2_000:]}")
    return float(json.loads(done.stdout))


if __name__ == "__main__":
    print(core_speed.one_run_us(sys.argv[1], int(sys.argv[2]), QUICK))
