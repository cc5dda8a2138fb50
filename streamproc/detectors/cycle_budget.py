"""BUDGET003 cycle: a cycle has run too often, for too long, or has cost too much.

Sees: iterations of a cycle (passes of its anchor edge, and rounds that avoid it) against `maxCycleIterations`, and the
log time and spend of its own nodes since the run entered it against `maxCycleRuntimeMs` and `maxCycleCost`. The time
between two events belongs to the turn that ends it: a turn of a node outside of the cycle adds nothing. Cycles come
from the declared graph, or else from the observed handovers. An observed cycle starts with the run if the run did
nothing else before, else when it is found.

Why: a loop that should converge in three rounds and is in its eighth needs a person, even if each round was new.

False alarms: none if the numbers are right; nothing is limited unless the run or the policy declares it. A missing
`from` is inferred from the order of the turns.

Tuning: declare `maxCycleIterations`, `maxCycleRuntimeMs`, `maxCycleCost` on `run.started` or in the policy.

Reference: loop-safety requirement "per-cycle budget".
"""

from __future__ import annotations

from typing import Any

from streamproc.detectors.base import Example, Finding, View, kind, said, started
from streamproc.detectors.budget_detector import Measure, MeasuredBudget


class CycleBudget(MeasuredBudget):
    code, name = "BUDGET003", "cycle"
    kinds = kind.CYCLE
    evidence = (*MeasuredBudget.evidence, "iteration")
    measures = (
        Measure("maxCycleIterations", "iterations", "cycle_iterations"),
        Measure("maxCycleRuntimeMs", "ms", "cycle_runtime_ms"),
        Measure("maxCycleCost", "micro_usd", "cycle_cost"),
    )

    def check(self, view: View, limits: Any) -> Finding | None:
        cycle, run = view.cycle, view.run
        if cycle is None or not cycle.iterations:
            return None
        used = (
            cycle.iterations if view.iterated else -1,
            run.at_ms - cycle.since_ms if cycle.since_ms else -1,
            run.ledger.cost_usd_micro - cycle.spent_before,
        )
        return self.worst(view, used, f"The cycle through {view.turn.node}", cycle.anchor, iteration=cycle.iterations)


DETECTOR = CycleBudget()
_BUDGET = {
    "type": "run.started",
    "graph": {"edges": [["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]]},
    "budgets": {"maxCycleIterations": 2},
}


def _rounds(count: int) -> list[dict[str, object]]:
    return [said(node, f"{node} {n}") for n in range(count) for node in ("coder", "verifier")]


HEALTHY = [Example("no limit is set", _rounds(40)), Example("within its budget", [_BUDGET, *_rounds(2)])]
STUCK = [
    Example("a third iteration where two are allowed", [_BUDGET, *_rounds(4)], "halt", 6),
    Example("without a declared graph", [started(maxCycleIterations=2), *_rounds(4)], "halt", 6),
]  # fmt: skip
