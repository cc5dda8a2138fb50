"""Inject every fault in its long form, then one at a time with new seeds until the time is up. The fault in progress
then finishes. Stops at the first failure and prints how to repeat it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from docs.tables import write_between_marks
from tests.faults.runner import FAULTS
from tests.faults.scenario import Result
from tests.faults.summary import head, surfaces, table

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the faults and print the table; return the exit code of pytest."""
    options = _options()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        report = Path(directory) / "results.jsonl"
        report.touch()
        for seed, names in _rounds(options.seed, options.only or list(FAULTS)):
            code = _run_round(seed, names, report, short=options.short)
            minutes = (time.monotonic() - began) / 60
            if code or minutes >= options.minutes:
                break
        results = [Result(**json.loads(line)) for line in report.read_text("utf-8").splitlines()]
    tables = "\n\n".join(filter(None, (table(results), surfaces(results))))
    text = f"{head(minutes, options.seed, _commit())}\n\n{tables}"
    print(f"\n{text}", flush=True)
    if options.summary is not None and not code:
        write_between_marks(options.summary, "faults", text)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults ARGS=…", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=30,
        help="start faults for this long (default: 30); each runs once at least",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round (default: 1)")
    parser.add_argument("--only", choices=list(FAULTS), action="append", help="only this fault; can be repeated")
    parser.add_argument("--short", action="store_true", help="the short form, as in `make test`")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the table between the marks of this file")
    return parser.parse_args()


def _rounds(seed: int, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield a seed and the faults to run with it: first all of them, then one at a time without end."""
    yield seed, names
    for later in count(seed + 1):
        for name in names:
            yield later, [name]


def _run_round(seed: int, names: list[str], report: Path, *, short: bool) -> int:
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
