"""Compare a cautious and a permissive policy on the same forty recorded runs.

    python examples/two_policies/run.py

The runs come with the package: real agents, some of them stuck, some solved in the end. Every policy gets the same
turns; `standard` lies between the two. The script needs no broker, no model and no clock.
"""

from __future__ import annotations

import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamproc import Monitor
from streamproc.samples import outcomes, trajectory_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.samples import RecordedOutcome

FOLDER = Path(__file__).parent
POLICIES = {"cautious": FOLDER / "cautious.yaml", "standard": "standard", "permissive": FOLDER / "permissive.yaml"}
TURN_USD = Decimal("0.05")  # the cost of a turn: replace it with yours


class Halt(NamedTuple):
    """The detector that halted a run, and the turn."""

    code: str
    turn: int

    def __str__(self) -> str:
        return f"{self.code} at {self.turn}"


def main() -> int:
    """Play all runs under each policy, and compare."""
    runs = outcomes()
    halts = {name: first_halts(policy) for name, policy in POLICIES.items()}
    report_runs(runs, halts)
    for name, halted in halts.items():
        report_policy(name, runs, halted)
    return 0


def first_halts(policy: str | Path) -> dict[str, Halt]:
    """Return the first halt of each run under a policy."""
    monitor = Monitor(policy=policy)
    found: dict[str, Halt] = {}
    with trajectory_file() as path, gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            for control in monitor.feed(json.loads(line)):
                if control.halts and control.trigger is not None:
                    found.setdefault(control.run_id, Halt(control.code, control.trigger.turn or 0))
    return found


def report_runs(runs: Mapping[str, RecordedOutcome], halts: Mapping[str, Mapping[str, Halt]]) -> None:
    """Print every run that any of the policies halts."""
    head = "".join(f"{name:<16}" for name in halts)
    print(f"{'run':<46} {'turns':>5}  {'task':<8}{head}".rstrip())
    for run_id, outcome in runs.items():
        if any(run_id in halted for halted in halts.values()):
            task = "solved" if outcome.solved else "failed"
            verdicts = "".join(f"{halted.get(run_id, '-')!s:<16}" for halted in halts.values())
            print(f"{run_id:<46} {outcome.turns:>5}  {task:<8}{verdicts}".rstrip())


def report_policy(name: str, runs: Mapping[str, RecordedOutcome], halted: Mapping[str, Halt]) -> None:
    """Print what a policy saves on runs that fail anyway, and which successful runs it disturbs."""
    spared = sum(runs[run_id].turns - halt.turn - 1 for run_id, halt in halted.items() if not runs[run_id].solved)
    disturbed = [run_id for run_id in halted if runs[run_id].solved]
    print(f"\n{name}")
    print(
        f"  halts {len(halted) - len(disturbed)} runs that fail anyway: {spared} turns, {spared * TURN_USD} USD spared"
    )
    print(f"  halts {len(disturbed)} runs that would have succeeded{': ' if disturbed else ''}{', '.join(disturbed)}")


if __name__ == "__main__":
    sys.exit(main())
