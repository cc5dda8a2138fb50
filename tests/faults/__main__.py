"""``python -m tests.faults``: plays every fault in its long form, round after round with new seeds, until the time is
over; the first round is played to its end. Stops at the first fault that fails, and says how to repeat it."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.scene import Figures
from tests.faults.stage import FAULTS
from tests.faults.summary import head, table, write_between_marks

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Play, print the table; the exit code is pytest's."""
    options = _options()
    began, seed, until_s = time.monotonic(), options.seed, time.time() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        report = Path(directory) / "figures.jsonl"
        report.touch()
        while True:
            code = _round(seed, report, options, until_s if seed > options.seed else math.inf)
            seed += 1
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
    parser.add_argument("--minutes", type=float, default=30, help="so long, and one round at least (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (1)")
    parser.add_argument("--only", choices=list(FAULTS), action="append", help="this fault; may come several times")
    parser.add_argument("--short", action="store_true", help="as small as in `make test`")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="put the table between the marks of this file")
    return parser.parse_args()


def _round(seed: int, report: Path, options: argparse.Namespace, until_s: float) -> int:
    environment = {
        "FAULTS_SEED": str(seed),
        "FAULTS_REPORT": str(report),
        "FAULTS_ONLY": ",".join(options.only or ()),
        "FAULTS_UNTIL": str(until_s),
    }
    if not options.short:
        environment["FAULTS_LONG"] = "1"
    print(f"\nseed {seed}", flush=True)
    command = [sys.executable, "-m", "pytest", "tests/faults", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
    return subprocess.run(command, env=os.environ | environment, cwd=ROOT, check=False).returncode


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
