"""BUDGET002 node: one node has used up its turns or its runtime.

Sees: turns of one node in a run against `maxTurnsPerNode`, and their runtime against `maxRuntimeMsPerNode`: the log
time from `turn.started` to the turn, or `usage.duration_ms` if that is more or nothing else is known. Warns when a
budget is used up, halts when it is exceeded.

Why: a budget is the last line of defence, whatever the other detectors find.

False alarms: none if the number is right. Six turns fit a turn that is a whole coding job, and are far too few for a
turn that is one tool call; so nothing is limited unless the run or the policy declares it.

Tuning: declare `maxTurnsPerNode`, `maxRuntimeMsPerNode` on `run.started` or in the policy.

Reference: loop-safety requirement "per-node budget".
"""

from __future__ import annotations

from typing import Any

from streamproc.detectors.base import START_MS, Example, Finding, View, kind, said, started, steps
from streamproc.detectors.budget_detector import Measure, MeasuredBudget


class NodeBudget(MeasuredBudget):
    code, name = "BUDGET002", "node"
    kinds = kind.BUDGET
    measures = (
        Measure("maxTurnsPerNode", "turns", "node_turns"),
        Measure("maxRuntimeMsPerNode", "ms", "node_runtime_ms"),
    )

    def check(self, view: View, limits: Any) -> Finding | None:
        return self.worst(view, (view.counts.turns, view.counts.runtime_ms), view.turn.node, view.node_tag)


DETECTOR = NodeBudget()
_BUDGET = started(maxTurnsPerNode=3)
HEALTHY = [
    Example("no limit is set", steps(80, "coder")),
    Example(
        "two nodes within their budgets", [_BUDGET, *(said(node, f"{node} {n}") for n in range(2) for node in "ab")]
    ),
]
STUCK = [
    Example("one turn too many", [_BUDGET, *steps(4, "coder")], "halt", 3),
    Example("too long since its turns were started", [
        {"type": "run.started", "at": START_MS, "budgets": {"maxRuntimeMsPerNode": 60_000}},
        {"type": "turn.started", "at": START_MS + 1_000, "node": "coder"}, said("coder", "half", at=START_MS + 41_000),
        {"type": "turn.started", "at": START_MS + 90_000, "node": "coder"},
        said("coder", "all of it", at=START_MS + 115_000),
    ], "halt", 1),
    Example("all of its turns", [_BUDGET, *steps(3, "coder")], "warn", 2),
]  # fmt: skip
