"""GRAPH001 unsafe_cycle: the declared graph of a run has a cycle that nothing can leave.

Sees: the graph on `run.started`. A cycle (a strongly connected component, or an edge from a node to itself) is unsafe
where no terminal node can be reached from it. Terminal are the nodes that are marked so or called `END`, `end` or
`__end__`; where none is marked, also those without an edge out. The check is linear in nodes and edges. It comes
before the first turn, so nothing was spent.

Why: such a run has no way to end but a limit. This is the one loop that can be known before it turns.

False alarms: a graph that leaves out its edges to the end, or nodes that end the run by themselves. Declare the edge,
or mark the node: `{"id": "writer", "terminal": true}`.

Tuning: `halt: 0` only warns; `GRAPH001: false` says nothing. `streamproc graph check FILE`, `streamproc.check_graph`
and the publisher say the same earlier. Action and alternatives are policy (`actions`); without one it is `halt`.

Reference: deliberation requirement, layer 2: cycles without an exit path are rejected; loop-safety requirement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, level, said
from streamproc.errors import LEAVE_A_CYCLE, named_cycle

CYCLES_TOLD = 5  # in the message; the evidence has more
NODES_TOLD = 6  # of each of them
NODES_SHOWN = 12  # of a cycle, in the evidence
NAME_SHOWN = 80  # characters of a node's name
EVIDENCE_SHOWN = 16_000  # characters of names: a control event stays small, however large the graph


@dataclass(frozen=True, slots=True)
class Limits:
    """How many such cycles a graph may have; 0 turns a level off."""

    warn: int = 1  # where it does not halt, it is told
    halt: int = 1  # the requirement rejects a graph with one


class UnsafeGraphCycle:
    """GRAPH001."""

    code = "GRAPH001"
    name = "unsafe_cycle"
    kinds = kind.STARTED

    def check(self, view: View, limits: Limits) -> Finding | None:
        cycles = view.unsafe
        reached = level(len(cycles), limits.warn, limits.halt)
        if reached is None:
            return None
        more = f" and {len(cycles) - CYCLES_TOLD} more" if len(cycles) > CYCLES_TOLD else ""
        told = "; ".join(named_cycle(_short(cycle), NODES_TOLD) for cycle in cycles[:CYCLES_TOLD])
        return Finding(
            code=self.code,
            level=reached,
            loop=xxhash.xxh3_64_intdigest("\0".join(map("\0".join, cycles)).encode("utf-8", "surrogatepass")),
            message=f"The declared graph has {len(cycles)} cycle(s) that nothing can leave: {told}{more}. "
            f"{LEAVE_A_CYCLE}.",
            evidence=Evidence(kind=self.name, count=len(cycles), cycles=list(_shown(cycles))),
            reason=STALLED,
            status="blocked",
            action="halt",
        )


def _short(nodes: Sequence[str]) -> list[str]:
    return [name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}…" for name in nodes]


def _shown(cycles: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    room = EVIDENCE_SHOWN
    for cycle in cycles:
        names = _short(cycle[:NODES_SHOWN])
        room -= sum(map(len, names))
        if room < 0:
            return
        yield names


DETECTOR = UnsafeGraphCycle()

HEALTHY = [
    Example("a loop with a way out", [
        {"type": "run.started", "graph": {"edges": [
            ["facilitator", "persona"], ["persona", "check"], ["check", "facilitator"], ["check", "vote"],
        ]}},
        said("facilitator", "Round 1."),
    ]),
    Example("an end two steps behind the loop", [
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
    Example("no graph", [{"type": "run.started", "workflow": "bugfix"}, said("coder", "Set a to 2.")]),
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
