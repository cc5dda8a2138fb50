"""GRAPH002 unreadable_graph: the declared graph of a run cannot be read, and so is not used.

Sees: the graph on `run.started`, where something in it is neither node nor edge. The place of the first mistake is
told. The run goes on, and its cycles are found from the hand-overs that are seen, as if no graph had been declared.

Why: budgets of a cycle and its anchor edge do not hold as they were meant, and GRAPH001 had nothing to look at.

False alarms: none. Our publisher refuses such an event before it is sent, naming the field; this one came from
another publisher, or from a file.

Tuning: `warn: 0` turns it off. `streamproc graph check FILE` says what is wrong.

Reference: none; a graph that is silently ignored would be the worst answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, said

REASON_SHOWN = 300  # characters of what is wrong


@dataclass(frozen=True, slots=True)
class Limits:
    """Whether such a graph is told."""

    warn: int = 1  # it never halts: a mistake in a declaration is no loop


class UnreadableGraph:
    """GRAPH002."""

    code = "GRAPH002"
    name = "unreadable_graph"
    kinds = kind.STARTED

    def check(self, view: View, limits: Limits) -> Finding | None:
        why = view.unreadable
        if not why or not limits.warn:
            return None
        why = " ".join(why[:REASON_SHOWN].split())
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=xxhash.xxh3_64_intdigest(why.encode("utf-8", "surrogatepass")),
            message=f"The declared graph cannot be read and is not used: {why}. Cycles are followed as they are seen.",
            evidence=Evidence(kind=self.name, reason=why),
            reason=STALLED,
            status="stalled",
        )


DETECTOR = UnreadableGraph()

HEALTHY = [
    Example("edges of both forms", [
        {"type": "run.started", "graph": {"edges": [["a", "b"], {"from": "b", "to": "END"}]}}, said("a", "Done."),
    ]),
    Example("an empty graph", [{"type": "run.started", "graph": {}}, said("a", "Done.")]),
]  # fmt: skip
STUCK = [
    Example("an edge with one end", [{"type": "run.started", "graph": {"edges": [["a", "b"], ["b"]]}}], "warn", 0),
    Example("edges that are no list", [{"type": "run.started", "graph": {"edges": "a → b"}}], "warn", 0),
]  # fmt: skip
