"""A planner that keeps assessing, and the run reports that explain its halts.

    python examples/planner_loop/run.py

The script feeds recorded turns (`turns.jsonl`) to the engine one by one, as live agents would. When the engine halts a
run, the planner routes to `snitch`, which writes the report. It needs no broker, no model and no clock.
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
    """Feed a run until the planner has to route to snitch, or until it ends."""
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
                researcher.report()
                snitch(control, hops, sum("node" in later for later in events[place + 1 :]))
                return
        if "query" in event:
            researcher.answer(event["query"])
    researcher.report()
    print(f"  ended by itself, after {', '.join(f'{edge} {count}' for edge, count in hops.items())}")


class Researcher:
    """Returns its existing results for queries that yield no new information."""

    def __init__(self) -> None:
        self._returned: dict[str, int] = {}

    def stop_asking(self, query: str) -> None:
        """Remember an `information.none`, which comes once for each query."""
        self._returned[_plain(query)] = 0

    def answer(self, query: str) -> None:
        """Answer a query; a known one needs no new research."""
        if _plain(query) in self._returned:
            self._returned[_plain(query)] += 1

    def report(self) -> None:
        """Print how much research was not repeated."""
        for query, times in self._returned.items():
            print(f"  researcher returned its existing results {times} times: ", end="")
            print(f'No new information found; repeated query "{query}"')


def _plain(query: str) -> str:
    return " ".join(query.split())


def snitch(control: ControlEvent, hops: dict[str, int], after: int) -> None:
    """Print the report of a halted run: its status, the loop, and the reason."""
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
