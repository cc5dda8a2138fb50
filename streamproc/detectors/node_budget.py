"""BUDGET002 node: one node has used up its turns or its runtime.

Sees: turns of one node in a run against `maxTurnsPerNode`, and their measured `usage.duration_ms` against
`maxRuntimeMsPerNode`. Warns when a budget is used up, halts when it is exceeded.

Why: a budget is the last line, whatever the other detectors think.

False alarms: none if the number is right. Six turns are right where a turn is a whole coding job, and absurd where a
turn is one tool call; so nothing is limited unless the run or the policy says so.

Tuning: declare `maxTurnsPerNode`, `maxRuntimeMsPerNode` on `run.started` or in the policy.

Reference: loop-safety requirement "per-node budget".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.detectors.breach import NEVER, breach, graver


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers are budgets: declared on the run, or in the policy under `budgets`."""


class NodeBudget:
    """BUDGET002."""

    code = "BUDGET002"
    name = "node"
    kinds = kind.BUDGET

    def check(self, view: View, limits: Limits) -> Finding | None:
        turns, runtime_ms = view.counts
        limit_of = view.budgets.get
        limit, runtime_limit_ms = limit_of("maxTurnsPerNode", NEVER), limit_of("maxRuntimeMsPerNode", NEVER)
        if turns < limit and runtime_ms < runtime_limit_ms:
            return None
        who = view.turn.node
        found = breach(self, turns, limit, "turns", who, view.node_tag)
        return graver(found, breach(self, runtime_ms, runtime_limit_ms, "ms", who, view.node_tag + 1))


DETECTOR = NodeBudget()

_BUDGET = {"type": "run.started", "budgets": {"maxTurnsPerNode": 3}}

HEALTHY = [
    Example("nobody set a limit", [said("coder", f"step {n}") for n in range(80)]),
    Example("two nodes within theirs", [_BUDGET, *(said(node, f"{node} {n}") for n in range(2) for node in "ab")]),
]
STUCK = [
    Example("one turn too many", [_BUDGET, *(said("coder", f"step {n}") for n in range(4))], "halt", 3),
    Example("used up", [_BUDGET, *(said("coder", f"step {n}") for n in range(3))], "warn", 2),
]
