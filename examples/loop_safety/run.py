"""Loops that converge, loops that stall, and the report that a person gets for each.

    python examples/loop_safety/run.py

The script feeds recorded turns (`turns.jsonl`) to the engine one by one, as live agents would, and ends a run when it
is halted. It needs no broker, no model and no clock.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproc import Monitor

if TYPE_CHECKING:
    from streamproc import ControlEvent

FOLDER = Path(__file__).parent


def main() -> int:
    """Play every run."""
    monitor = Monitor(policy=FOLDER / "policy.yaml")
    with (FOLDER / "turns.jsonl").open(encoding="utf-8") as lines:
        for run_id, events in groupby(map(json.loads, lines), key=lambda event: event["run_id"]):
            play(monitor, run_id, list(events))
    return 0


def play(monitor: Monitor, run_id: str, events: list[dict[str, Any]]) -> None:
    """Feed a run until it is halted or ends."""
    print(f"\n{run_id}")
    shown = ""
    for place, event in enumerate(events):
        controls = monitor.feed(event)
        seen = headline(monitor, run_id)
        if seen != shown:
            print(f"  {event.get('node', event.get('type')):<13} {seen}")
            shown = seen
        for control in controls:
            if not control.halts:
                print(f"  {'':<13} {control.severity} {control.code}: {control.message}")
                continue
            after = sum("node" in later for later in events[place + 1 :])
            report(control, seen, after)
            return
    print("  ended by itself")


def headline(monitor: Monitor, run_id: str) -> str:
    """Return the badge of a run's cycle and the trend of its failing tests."""
    status = monitor.status(run_id)
    if status is None:
        return ""
    trend = " → ".join(map(str, status.failing_trend))
    return "  ".join(part for part in (status.badge, f"failing tests {trend}" if trend else None) if part)


def report(control: ControlEvent, seen: str, after: int) -> None:
    """Print a halt for a person, and what the orchestrator should do."""
    turn = control.trigger.turn if control.trigger is not None else None
    print(f"  HALTED at turn {turn}, {after} turns spared: {control.message}")
    rows = {
        "type": control.type,
        "cycleId": control.cycle_id,
        "haltReason": f"{control.halt_reason} ({control.code}), ends as {control.terminal_status}",
        "badge": seen,
        **loop_evidence(control),
        "onStall": in_words(control.action or ""),
        "or": "; ".join(map(in_words, control.suggested_actions[1:])),
    }
    for name, value in rows.items():
        if value:
            print(f"    {name:<12} {value}")


def in_words(action: str) -> str:
    """Return an action as a person reads it."""
    return action.replace("_", " ")


def loop_evidence(control: ControlEvent) -> dict[str, str]:
    """Return the "Loop Evidence" section of the node inspector: hashes, failure summaries, and the budget."""
    evidence = control.evidence
    if evidence is None:
        return {}
    budget = f"{evidence.used} of {evidence.limit} {evidence.unit}" if evidence.limit is not None else ""
    return {
        "budget": budget,
        "diffs": " ".join(evidence.artifact_hashes or ()),
        "test sets": " ".join(evidence.failing_signatures or ()),
        "outputs": " ".join(evidence.output_hashes or ()),
        "failing": ", ".join(evidence.failing_tests or ()),
        "first error": evidence.first_error or "",
    }


if __name__ == "__main__":
    sys.exit(main())
