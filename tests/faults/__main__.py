"""``python -m tests.faults``: plays every fault in its long form, then one after the other with new seeds, until the
time is over. A fault that was begun is finished. Stops at the first one that fails, and says how to repeat it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.scene import Figures
from tests.faults.stage import FAULTS
from tests.faults.summary import head, table, write_between_marks

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Play, print the table; the exit code is pytest's."""
    options = _options()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        report = Path(directory) / "figures.jsonl"
        report.touch()
        for seed, names in _plays(options.seed, options.only or list(FAULTS)):
            code = _play(seed, names, report, short=options.short)
            minutes = (time.monotonic() - began) / 60
            if code or minutes >= options.minutes:
                break
        figures = [Figures(**json.loads(line)) for line in report.read_text("utf-8").splitlines()]
    text = f"{head(minutes, options.seed, _commit())}\n\n{table(figures)}"
    print(f"\n{text}", flush=True)
    if options.summary is not None and not code:
        write_between_marks(options.summary, text)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults ARGS=…", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=30, help="faults begin for so long (30); each is played once at least"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first time (1)")
    parser.add_argument("--only", choices=list(FAULTS), action="append", help="this fault; may come several times")
    parser.add_argument("--short", action="store_true", help="as small as in `make test`")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="put the table between the marks of this file")
    return parser.parse_args()


def _plays(seed: int, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """A seed and what is played with it: first all of these faults, then for ever one at a time."""
    yield seed, names
    for later in count(seed + 1):
        for name in names:
            yield later, [name]


def _play(seed: int, names: list[str], report: Path, *, short: bool) -> int:
    environment = {"FAULTS_SEED": str(seed), "FAULTS_REPORT": str(report), "FAULTS_ONLY": ",".join(names)}
    if not short:
        environment["FAULTS_LONG"] = "1"
    print(f"\nseed {seed}: {', '.join(names)}", flush=True)
    command = [sys.executable, "-m", "pytest", "tests/faults", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
    return subprocess.run(command, env=os.environ | environment, cwd=ROOT, check=False).returncode


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
