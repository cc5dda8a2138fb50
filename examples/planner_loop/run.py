"""A planner that goes on assessing, and the run reports that say so.

    python examples/planner_loop/run.py

The turns are recorded (`turns.jsonl`); the engine hears them one by one, as it would from live agents. Where it halts a
run, the planner routes to `snitch`, which writes the report. No broker, no model, no clock.
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
            print(f"\n{run_id}")
            play(monitor, list(events))
    return 0


def play(monitor: Monitor, events: list[dict[str, Any]]) -> None:
    """Let a run go on until the planner has to route to snitch, or until it is over."""
    hops: dict[str, int] = {}
    researcher = Researcher()
    for place, event in enumerate(events):
        if "decision" in event:
            edge = f"planner_to_{event['decision']['next']}"
            hops[edge] = hops.get(edge, 0) + 1
        for control in monitor.feed(event):
            if control.type == "information.none":
                researcher.stop_asking(event["query"])
            elif control.halts:
                researcher.tell()
                snitch(control, hops, sum("node" in later for later in events[place + 1 :]))
                return
        if "query" in event:
            researcher.answer(event["query"])
    researcher.tell()
    print(f"  ended by itself, after {', '.join(f'{edge} {count}' for edge, count in hops.items())}")


class Researcher:
    """Returns what it has where it was told that asking again brings nothing."""

    def __init__(self) -> None:
        self._returned: dict[str, int] = {}

    def stop_asking(self, query: str) -> None:
        """`information.none` comes once for each query: remember it."""
        self._returned[_plain(query)] = 0

    def answer(self, query: str) -> None:
        """Do no research where it was done."""
        if _plain(query) in self._returned:
            self._returned[_plain(query)] += 1

    def tell(self) -> None:
        """How much research was not done again."""
        for query, times in self._returned.items():
            print(
                f'  researcher returned what it had, {times} times: No new information found; repeated query "{query}"'
            )


def _plain(query: str) -> str:
    return " ".join(query.split())


def snitch(control: ControlEvent, hops: dict[str, int], after: int) -> None:
    """The report of a run that was stopped: its status, and which loop it was, and why."""
    evidence = control.evidence
    turn = control.trigger.turn if control.trigger is not None else None
    print(f"  the planner routes to {control.action}; run report:")
    print(f"    terminalStatus  {control.terminal_status}")
    print(f"    stopReason      {control.message}")
    if evidence is not None and evidence.edge:
        edge = "_to_".join(evidence.edge)
        print(f"    loop            {edge}: {hops.get(edge)} hops, the last {evidence.count} without progress")
        print(f"    limit           {evidence.limit}")
    print(f"    detected        {control.code} at turn {turn}, {after} turns spared")
    print(f"    next            {', or '.join(control.suggested_actions)}")


if __name__ == "__main__":
    sys.exit(main())
