"""Deliberations that reach agreement, and others that one of five layers ends.

    python examples/deliberation/run.py

The script feeds recorded turns (`turns.jsonl`) to the engine one by one, as a live graph would, and ends a deliberation
when it is halted. It needs no broker, no model and no clock.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproc import Monitor
from streamproc.notify.triggers import trigger_of

if TYPE_CHECKING:
    from streamproc import ControlEvent

FOLDER = Path(__file__).parent

# The layer of each code, and that layer's name for the stop.
LAYERS = {
    "BUDGET004": ("layer 1", "GraphRecursionError"),
    "GRAPH001": ("layer 2", "ValueError"),
    "BUDGET005": ("layer 3", ""),  # `stop_reason` has the requirement's word: hard_cap_15_rounds, max_rounds, consensus
    "BUDGET006": ("layer 4", "TimeoutError"),
    "BUDGET007": ("layer 5", ""),  # cost_budget_exceeded
}


def main() -> int:
    """Play every deliberation."""
    monitor = Monitor(policy=FOLDER / "policy.yaml")
    with (FOLDER / "turns.jsonl").open(encoding="utf-8") as lines:
        for run_id, events in groupby(map(json.loads, lines), key=lambda event: event["run_id"]):
            print(f"\n{run_id}")
            play(monitor, run_id, list(events))
    return 0


def play(monitor: Monitor, run_id: str, events: list[dict[str, Any]]) -> None:
    """Feed a deliberation until it is halted or completed."""
    for place, event in enumerate(events):
        for control in monitor.feed(event):
            report(control)
            if control.halts:
                report_halt(control, sum("node" in later for later in events[place + 1 :]))
                return
    status = monitor.status(run_id)
    if status is not None:
        print(f"  completed: {status.turns} steps, {status.cost_usd_micro / 1e6:.2f} USD")


def report(control: ControlEvent) -> None:
    """Print one line for a decision."""
    layer, _ = LAYERS[control.code]
    turn = control.trigger.turn if control.trigger is not None else None
    print(f"  step {(turn or 0) + 1:<2} {control.severity:<4} {layer}: {control.message}")
    if control.severity == "info":
        print(f"               should_stop = True, stop_reason = {stop_reason(control)!r}; the graph routes to vote")
    elif control.action == "force_synthesis" and not control.halts:
        print("               the graph finishes in this round")


def report_halt(control: ControlEvent, after: int) -> None:
    """Print how a halted deliberation ended, and its last known state."""
    print(f"    stop_reason  {stop_reason(control)}")
    print(f"    status       {control.terminal_status}")
    print(f"    action       {control.action}, or {', or '.join(control.suggested_actions[1:])}")
    snapshot = control.evidence.snapshot if control.evidence is not None else None
    if snapshot is not None:
        print(f"    snapshot     {snapshot.turns} steps, round {snapshot.round}, last event at {snapshot.heard_at}")
    trigger = trigger_of(control)
    if trigger is not None:
        print(f"    alert        {trigger.type} {trigger.urgency.name}: {trigger.reason}")
    if after:
        print(f"    spared       {after} steps")


def stop_reason(control: ControlEvent) -> str:
    """Return `state["stop_reason"]`, or the exception that replaced it."""
    _, reason = LAYERS[control.code]
    return reason or control.stop_reason or control.code


if __name__ == "__main__":
    sys.exit(main())
