"""The examples as a person runs them: the script, and the scan of its turns."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source

if TYPE_CHECKING:
    from streamproc.core.decision import Decision

ROOT = Path(__file__).parents[2]


@cache
def printed(name: str) -> str:
    """What `python examples/NAME/run.py` prints. It needs no broker, and ends well."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STREAMPROC_")}
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
def scanned(name: str) -> dict[str, list[Decision]]:
    """What `streamproc scan examples/NAME/turns.jsonl --policy examples/NAME/policy.yaml` tells, by run."""
    folder = ROOT / "examples" / name
    scan = Scan([Source(folder / "turns.jsonl")], load_policy(folder / "policy.yaml"))
    told: dict[str, list[Decision]] = {}
    for decision in scan:
        told.setdefault(decision.run_id, []).append(decision)
    return {run_id: told.get(run_id, []) for run_id in scan.runs}


def first_halts(name: str) -> dict[str, Decision | None]:
    """What halts each run of an example; None where nothing does."""
    return {
        run_id: next((decision for decision in told if decision.severity == "halt"), None)
        for run_id, told in scanned(name).items()
    }


def turn_of(decision: Decision) -> int | None:
    """The index of the turn that caused a decision."""
    return decision.trigger.turn if decision.trigger is not None else None


def chapter(name: str, run_id: str) -> list[str]:
    """The lines that the script prints of one run."""
    _, _, rest = printed(name).partition(f"\n{run_id}\n")
    return rest.partition("\n\n")[0].splitlines()
