"""The core of this checkout compared with that of another commit: the same decisions, and the ratio of their times.

    python -m benchmarks.core_before_after COMMIT [--rounds N]

The other commit is checked out into a temporary folder and compiled there. Both step the same turns in alternating
rounds, in processes of their own, compiled and in pure Python; both scan the recorded runs of the samples, and their
decisions must be the same bytes. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.core_speed import TRACES
from benchmarks.machine import ROOT
from benchmarks.table import BenchmarkDefect
from benchmarks.timing import interleaved
from streamproc.core.compiled import FOLDER, MANIFEST

CORES: Final = ("compiled", "python")
SAMPLES: Final = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"
TURNS: Final = {"compiled": 10_000, "python": 3_000}


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with another commit, compiled, and remove it at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "before"
        _run(ROOT, "git", "worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            _run(folder, sys.executable, "deploy/compiled/build.py", PYTHONPATH=str(folder))
            yield folder
        finally:
            _run(ROOT, "git", "worktree", "remove", "--force", str(folder))


def compare(before: Path, rounds: int) -> None:
    """Print whether the decisions are the same, and a line for each trace and form of the core."""
    found = {core: {folder: _decisions(folder, core) for folder in (before, ROOT)} for core in CORES}
    same = all(len(set(decisions.values())) == 1 for decisions in found.values())
    sys.stdout.write(f"decisions on the samples: {'the same bytes' if same else 'DIFFERENT'}\n")
    for core in CORES:
        for trace in TRACES:
            contenders = {folder.name: partial(_us, folder, core, trace) for folder in (before, ROOT)}
            figures = interleaved(contenders, rounds)
            was, now = figures[before.name], figures[ROOT.name]
            ratio = median(one / other for one, other in zip(now, was, strict=True))
            text = f"{core}, {trace}: {min(was):.2f} → {min(now):.2f} µs a turn (best), ratio {ratio:.3f} (median)\n"
            sys.stdout.write(text)
            sys.stdout.flush()


def _us(folder: Path, core: str, trace: str) -> float:
    return float(json.loads(_python(folder, core, "-m", "benchmarks.core_compiled", trace, str(TURNS[core]))))


def _decisions(folder: Path, core: str) -> bytes:
    return _python(folder, core, "-m", "streamproc", "scan", str(SAMPLES), "--json", codes=(0, 1))


def _python(folder: Path, core: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> bytes:
    return _run(folder, sys.executable, *arguments, codes=codes, STREAMPROC_CORE=core, PYTHONPATH=str(folder))


def _run(folder: Path, *command: str, codes: tuple[int, ...] = (0,), **environment: str) -> bytes:
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, check=False)
    if done.returncode not in codes:
        raise BenchmarkDefect(f"{' '.join(command)} failed in {folder}: {done.stderr[-2_000:].decode()}")
    return done.stdout


def main() -> None:
    """Compare with the commit of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=7)
    wanted = parser.parse_args()
    if not (FOLDER / MANIFEST).exists():
        sys.exit("this checkout is not compiled: make compile")
    with checkout(wanted.commit) as before:
        compare(before, wanted.rounds)


if __name__ == "__main__":
    main()
