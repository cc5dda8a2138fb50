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

from collections.abc import Mapping
from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Finding
from streamproc.core.marks import NEVER
from streamproc.core.scope import Scope
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.detectors.breach import breach, layer_of, more_severe


@dataclass(frozen=True, slots=True)
class Limits:
    """None of its own: the limits are budgets, declared on the run or in the policy under `budgets`."""


class NodeBudget:
    """BUDGET002."""

    code = "BUDGET002"
    name = "node"
    budgets = ("maxTurnsPerNode", "maxRuntimeMsPerNode")
    kinds = kind.BUDGET

    def budget_marks(self, _: Limits, budgets: Mapping[str, int], __: Scope) -> dict[str, int]:
        return {
            "node_turns": budgets.get("maxTurnsPerNode", NEVER),
            "node_runtime_ms": budgets.get("maxRuntimeMsPerNode", NEVER),
        }

    def check(self, view: View, limits: Limits) -> Finding | None:
        turns, runtime_ms = view.counts.turns, view.counts.runtime_ms
        limit_of = view.budgets.get
        limit, runtime_limit_ms = limit_of("maxTurnsPerNode", NEVER), limit_of("maxRuntimeMsPerNode", NEVER)
        if turns < limit and runtime_ms < runtime_limit_ms:
            return None
        node = view.turn.node
        layer = layer_of(view, "maxTurnsPerNode")
        found = breach(self, turns, limit, "turns", node, view.node_tag, layer=layer)
        layer = layer_of(view, "maxRuntimeMsPerNode")
        return more_severe(
            found, breach(self, runtime_ms, runtime_limit_ms, "ms", node, view.node_tag + 1, layer=layer)
        )


DETECTOR = NodeBudget()

_AT_MS = 1_767_225_600_000  # 2026-01-01
_BUDGET = {"type": "run.started", "budgets": {"maxTurnsPerNode": 3}}

HEALTHY = [
    Example("no limit is set", [said("coder", f"step {n}") for n in range(80)]),
    Example(
        "two nodes within their budgets", [_BUDGET, *(said(node, f"{node} {n}") for n in range(2) for node in "ab")]
    ),
]
STUCK = [
    Example("one turn too many", [_BUDGET, *(said("coder", f"step {n}") for n in range(4))], "halt", 3),
    Example(
        "too long since its turns were started",
        [
            {"type": "run.started", "at": _AT_MS, "budgets": {"maxRuntimeMsPerNode": 60_000}},
            {"type": "turn.started", "at": _AT_MS + 1_000, "node": "coder"},
            said("coder", "half", at=_AT_MS + 41_000),
            {"type": "turn.started", "at": _AT_MS + 90_000, "node": "coder"},
            said("coder", "all of it", at=_AT_MS + 115_000),
        ],
        "halt",
        1,
    ),
    Example("all of its turns", [_BUDGET, *(said("coder", f"step {n}") for n in range(3))], "warn", 2),
]
