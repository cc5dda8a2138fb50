"""GRAPH002 unreadable_graph: the declared graph of a run cannot be read and is ignored.

Sees: a graph on `run.started` that contains something other than nodes and edges. The message names the place of the
first mistake. The run continues, and its cycles are detected from handovers, as if no graph had been declared.

Why: the budgets of a cycle and its anchor edge do not apply as intended, and GRAPH001 could not check the graph.

False alarms: none. Our publisher refuses such an event before sending it and names the field; this one came from
another publisher, or from a file.

Tuning: `warn: 0` turns it off. `streamproc graph check FILE` shows the mistakes.

Reference: none; silently ignoring a graph would be the worst answer.
"""

from __future__ import annotations

from streamproc.detectors.base import Detector, Example, Finding, Level, View, kind, loop_of, said

REASON_SHOWN = 300  # characters of the mistake


class UnreadableGraph(Detector):
    code, name = "GRAPH002", "unreadable_graph"
    kinds = kind.STARTED
    evidence = ("reason",)
    status = "stalled"

    class Limits:
        """1: on; 0: off."""

        warn: int = 1  # it never halts: a mistake in a declaration is not a loop

    def check(self, view: View, limits: Limits) -> Finding | None:
        why = view.unreadable
        if not why or not limits.warn:
            return None
        why = " ".join(why[:REASON_SHOWN].split())
        message = f"The declared graph cannot be read and is ignored; cycles are detected from handovers: {why}."
        return self.finding(Level.WARN, loop_of(why), message, reason=why)


DETECTOR = UnreadableGraph()
HEALTHY = [
    Example("edges of both forms", [
        {"type": "run.started", "graph": {"edges": [["a", "b"], {"from": "b", "to": "END"}]}}, said("a", "Done."),
    ]),
    Example("an empty graph", [{"type": "run.started", "graph": {}}, said("a", "Done.")]),
]  # fmt: skip
STUCK = [
    Example("an edge with one end", [{"type": "run.started", "graph": {"edges": [["a", "b"], ["b"]]}}], "warn", 0),
    Example("edges that are not a list", [{"type": "run.started", "graph": {"edges": "a → b"}}], "warn", 0),
]  # fmt: skip
