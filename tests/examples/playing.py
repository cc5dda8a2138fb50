"""Run the examples as a user does: the script, and the scan of its turns."""

from __future__ import annotations

from functools import cache

from streamproc.model.controls import ControlEvent
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from tests.programs import ROOT, output_of


@cache
def printed(name: str) -> str:
    """Return the output of `python examples/NAME/run.py`, which needs no broker."""
    return output_of(ROOT / "examples" / name / "run.py")


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
