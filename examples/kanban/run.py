"""A team with a board of its own: four columns, its own guards and batch sizes, all declared in `policy.yaml`.

    python examples/kanban/run.py

The script feeds the recorded events of the board (`turns.jsonl`) to the engine one by one, as a live tracker would. It
needs no broker, no model and no clock.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from streamproc import Monitor

FOLDER = Path(__file__).parent


def main() -> int:
    """Play every run."""
    monitor = Monitor(policy=FOLDER / "policy.yaml")
    with (FOLDER / "turns.jsonl").open(encoding="utf-8") as lines:
        for run_id, events in groupby(map(json.loads, lines), key=lambda event: event["run_id"]):
            print(f"\n{run_id}")
            for event in events:
                play(monitor, event)
    return 0


def play(monitor: Monitor, event: dict[str, Any]) -> None:
    """Feed one event of the board, and print its decisions."""
    print(f"  {words(event)}")
    for control in monitor.feed(event):
        print(f"    {control.code} {control.type}: {control.message}")
        evidence = control.evidence
        if evidence is not None and evidence.last_valid:
            print(f"      {control.task_id} is in {evidence.last_valid}; action: {control.action}")


def words(event: dict[str, Any]) -> str:
    """Describe an event in a few words."""
    match event["type"]:
        case "task.transition":
            return f"{event['task_id']}: {event['from']} to {event['to']}"
        case "task.delegated":
            return f"{event['agent']} gets {', '.join(event['tasks'])}"
        case "cycle.completed":
            return f"{event['cycle']} is over, {event['completed']} done"
        case kind:
            return f"{event.get('task_id', event['run_id'])}: {kind}"


if __name__ == "__main__":
    sys.exit(main())
