"""A board of tickets: every signal of its rules, with the decision and the notification.

    python examples/tickets/run.py

The script feeds recorded events (`turns.jsonl`) to the engine one by one, as a live team would, and ends a run when it
is halted. It needs no broker, no model and no clock.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproc import Monitor
from streamproc.fleet.issuing import new_command
from streamproc.fleet.state import Fleet
from streamproc.notify.triggers import notice_of, trigger_of

if TYPE_CHECKING:
    from streamproc import ControlEvent

FOLDER = Path(__file__).parent
MONDAY_MS = 1_775_466_000_000  # 2026-04-06, 09:00 UTC


def main() -> int:
    """Play every run, then the commands to the whole fleet."""
    monitor = Monitor(policy=FOLDER / "policy.yaml")
    with (FOLDER / "turns.jsonl").open(encoding="utf-8") as lines:
        for story, events in groupby(map(json.loads, lines), key=lambda event: event["labels"]["story"]):
            print(f"\n{story}")
            play(monitor, list(events))
    print("\nSTOP_ALL")
    stop_all()
    return 0


def play(monitor: Monitor, events: list[dict[str, Any]]) -> None:
    """Feed the runs of a story until they are halted or end."""
    halted: set[str] = set()
    quiet = True
    for event in events:
        if event["run_id"] in halted:
            continue
        for control in monitor.feed(event):
            quiet = False
            report(control, "" if control.run_id == event["labels"]["story"] else f"{control.run_id}: ")
            if control.halts:
                halted.add(control.run_id)
    if quiet:
        print("  no decisions")


def report(control: ControlEvent, of_run: str) -> None:
    """Print a decision and its notification."""
    status = f", ends as {control.terminal_status}" if control.halts else ""
    rate = control.evidence.per_minute if control.evidence is not None else None
    burning = f" ({rate} {control.evidence.unit} a minute)" if rate and control.evidence is not None else ""
    print(f"  {of_run}{control.severity} {control.type} {control.code}{status}: {control.message}{burning}")
    trigger = trigger_of(control)
    if trigger is None:
        return
    notification = notice_of(control, trigger, trigger.urgency).notification
    about = "/".join(part for part in (notification.agent, notification.task_id) if part)
    print(f"       {notification.type} {about} {notification.urgency}: {notification.recommendation}")


def stop_all() -> None:
    """Print the status that every agent checks before it starts a task, writes, or delegates."""
    fleet = Fleet()
    for minute, (status, why) in enumerate([("PAUSE", "deploy"), ("STOP", "wrong branch"), ("CLEAR", "branch reset")]):
        command = new_command(fleet, status, "fleet", "dana", why, now_ms=MONDAY_MS + minute * 60_000)
        fleet.apply(command)
        may = "stop now" if fleet.stopped else "finish the current turn, start nothing" if fleet.paused else "continue"
        print(f"  {fleet.status}: {command}; agents {may}")


if __name__ == "__main__":
    sys.exit(main())
