"""GRAPH001 unsafe_cycle: the declared graph of a run has a cycle without an exit.

Sees: the graph on `run.started`. A cycle (a strongly connected component, or an edge from a node to itself) is unsafe
if no terminal node can be reached from it. Terminal nodes are those marked as terminal or named `END`, `end` or
`__end__`; if none is marked, also those without an outgoing edge. The check is linear in nodes and edges. It runs
before the first turn, so nothing has been spent.

Why: such a run can only end at a limit. This is the one loop that can be found before it runs.

False alarms: a graph that omits its edges to the end, or nodes that end the run by themselves. Declare the edge, or
mark the node: `{"id": "writer", "terminal": true}`.

Tuning: `halt: 0` only warns; `GRAPH001: false` turns it off. `streamproc graph check FILE`, `streamproc.check_graph`
and the publisher report the same earlier. Action and alternatives are policy (`actions`); the default is `halt`.

Reference: deliberation requirement, layer 2: cycles without an exit path are rejected; loop-safety requirement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from streamproc.detectors.base import Detector, Example, Finding, View, kind, level, loop_of, said
from streamproc.errors import LEAVE_A_CYCLE, named_cycle, plural

CYCLES_LISTED = 5  # in the message; the evidence has more
NODES_LISTED = 6  # of each cycle, in the message
NODES_SHOWN = 12  # of each cycle, in the evidence
NAME_SHOWN = 80  # characters of a node's name
EVIDENCE_SHOWN = 16_000  # characters of names: a control event stays small, however large the graph


class UnsafeGraphCycle(Detector):
    code, name = "GRAPH001", "unsafe_cycle"
    kinds = kind.STARTED
    evidence = "count", "cycles"
    status = "blocked"

    class Limits:
        """Unsafe cycles in a graph; 0 turns a level off."""

        warn: int = 1  # reported even if a policy turns the halt off
        halt: int = 1  # the requirement rejects a graph with a single one

    def check(self, view: View, limits: Limits) -> Finding | None:
        cycles = view.unsafe
        if (reached := level(len(cycles), limits.warn, limits.halt)) is None:
            return None
        count = plural(len(cycles), "cycle")
        more = f" and {len(cycles) - CYCLES_LISTED} more" if len(cycles) > CYCLES_LISTED else ""
        names = "; ".join(named_cycle(_short(cycle), NODES_LISTED) for cycle in cycles[:CYCLES_LISTED])
        message = f"The declared graph has {count} without an exit: {names}{more}. {LEAVE_A_CYCLE}."
        loop = loop_of(*chain.from_iterable(cycles))
        return self.finding(reached, loop, message, action="halt", count=len(cycles), cycles=list(_shown(cycles)))


def _short(nodes: Sequence[str]) -> list[str]:
    return [name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}…" for name in nodes]


def _shown(cycles: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    characters_left = EVIDENCE_SHOWN
    for cycle in cycles:
        names = _short(cycle[:NODES_SHOWN])
        characters_left -= sum(map(len, names))
        if characters_left < 0:
            return
        yield names


DETECTOR = UnsafeGraphCycle()
HEALTHY = [
    Example("a loop with an exit", [
        {"type": "run.started", "graph": {"edges": [
            ["facilitator", "persona"], ["persona", "check"], ["check", "facilitator"], ["check", "vote"],
        ]}},
        said("facilitator", "Round 1."),
    ]),
    Example("an exit two steps after the loop", [
        {"type": "run.started", "graph": {"edges": [
            ["coder", "verifier"], ["verifier", "coder"], ["verifier", "docs"], ["docs", "END"],
        ]}},
        said("coder", "Set a to 2."),
    ]),
    Example("a node of the loop ends the run", [
        {"type": "run.started", "graph": {
            "nodes": [{"id": "writer", "terminal": True}], "edges": [["writer", "critic"], ["critic", "writer"]],
        }},
        said("writer", "A draft."),
    ]),
    Example("a run without a graph", [{"type": "run.started", "workflow": "bugfix"}, said("coder", "Set a to 2.")]),
]  # fmt: skip
STUCK = [
    Example("a ring without an exit", [
        {"type": "run.started", "graph": {"edges": [["a", "b"], ["b", "c"], ["c", "a"]]}},
    ], "halt", 0),
    Example("an exit that leads into a trap", [
        {"type": "run.started", "graph": {"edges": [
            ["plan", "code"], ["code", "plan"], ["code", "review"], ["review", "review"], ["start", "END"],
        ]}},
    ], "halt", 0),
]  # fmt: skip
