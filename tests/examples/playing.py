"""Run the examples as a user does: the script, and the scan of its turns."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from streamproc.model.controls import ControlEvent
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source

ROOT = Path(__file__).parents[2]


@cache
def printed(name: str) -> str:
    """Return the output of `python examples/NAME/run.py`, which needs no broker and exits with 0."""
    environment = {
        key: os.environ[key] for key in os.environ if not key.startswith("STREAMPROC_") or key == "STREAMPROC_CORE"
    }
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name / "run.py")],
        env=environment | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@cache
def scanned(name: str) -> dict[str, list[ControlEvent]]:
    """Return the decisions of `streamproc scan examples/NAME/turns.jsonl --policy ...`, by run."""
    folder = ROOT / "examples" / name
    scan = Scan([Source(folder / "turns.jsonl")], load_policy(folder / "policy.yaml"))
    reported: dict[str, list[ControlEvent]] = {}
    for decision in scan:
        reported.setdefault(decision.run_id, []).append(decision)
    return {run_id: reported.get(run_id, []) for run_id in scan.runs}


def first_halts(name: str) -> dict[str, ControlEvent | None]:
    """Return the first halt of each run of an example; None if there is none."""
    return {
        run_id: next((decision for decision in reported if decision.severity == "halt"), None)
        for run_id, reported in scanned(name).items()
    }


def turn_of(decision: ControlEvent) -> int | None:
    """Return the index of the turn that caused a decision."""
    return decision.trigger.turn if decision.trigger is not None else None


def chapter(name: str, run_id: str) -> list[str]:
    """Return the lines that the script prints for one run."""
    _, _, rest = printed(name).partition(f"\n{run_id}\n")
    return rest.partition("\n\n")[0].splitlines()
