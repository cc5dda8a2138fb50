"""A workflow that repairs itself, and stops when repairs do not help.

    python examples/repair/run.py

The turns (`turns.jsonl`) were recorded without a breaker: up to 27 attempts (3 runtime attempts, each with 3 validation
attempts, each with 3 repair attempts). The script feeds them to the engine one by one, and the engine ends the loop. It
needs no broker, no model and no clock.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
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
            play(monitor, list(events))
    return 0


def play(monitor: Monitor, events: list[dict[str, Any]]) -> None:
    """Feed a run until it succeeds, or until the engine halts it."""
    attempt = 0
    for place, event in enumerate(events):
        controls = monitor.feed(event)
        if "errors" in event:
            attempt += 1
            print(f"  attempt {attempt}: {' | '.join(error['message'] for error in event['errors']) or 'success'}")
        elif "output" in event:
            print(f"  repair    : {event['output']}")
        for control in controls:
            if control.halts:
                print(f"  {control.message}")
                print(f"  {control.halt_reason} ({control.code}): {', or '.join(control.suggested_actions)}")
                print(f"  {attempt} attempts instead of {attempt + spared_attempts(events[place + 1 :])}, ", end="")
                print(f"{spared_usd(events[place + 1 :])} USD spared")
                return


def spared_attempts(later: list[dict[str, Any]]) -> int:
    """Return how many more attempts the run made without a breaker."""
    return sum("errors" in event for event in later)


def spared_usd(later: list[dict[str, Any]]) -> Decimal:
    """Return the cost of those attempts."""
    return sum((Decimal(event["usage"]["cost_usd"]) for event in later if "usage" in event), Decimal(0))


if __name__ == "__main__":
    sys.exit(main())
