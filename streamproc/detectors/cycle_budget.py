"""BUDGET003 cycle: a cycle has run too often, for too long, or has cost too much.

Sees: iterations of a cycle (passes of its anchor edge) against `maxCycleIterations`, and the log time and spend of its
own nodes since the run entered it against `maxCycleRuntimeMs` and `maxCycleCost`. The time between two events belongs
to the turn that ends it: a turn of a node outside of the cycle adds nothing. Cycles come from the declared graph, or
else from the observed handovers. An observed cycle starts with the run if the run did nothing else before, else when it
is found.

Why: a loop that should converge in three rounds and is in its eighth needs a person, even if each round was new.

False alarms: none if the numbers are right; nothing is limited unless the run or the policy declares it. A missing
`from` is inferred from the order of the turns.

Tuning: declare `maxCycleIterations`, `maxCycleRuntimeMs`, `maxCycleCost` on `run.started` or in the policy.

Reference: loop-safety requirement "per-cycle budget".
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


class CycleBudget:
    """BUDGET003."""

    code = "BUDGET003"
    name = "cycle"
    budgets = ("maxCycleIterations", "maxCycleRuntimeMs", "maxCycleCost")
    kinds = kind.CYCLE

    def budget_marks(self, _: Limits, budgets: Mapping[str, int], __: Scope) -> dict[str, int]:
        return {
            "cycle_iterations": budgets.get("maxCycleIterations", NEVER),
            "cycle_runtime_ms": budgets.get("maxCycleRuntimeMs", NEVER),
            "cycle_cost": budgets.get("maxCycleCost", NEVER),
        }

    def check(self, view: View, limits: Limits) -> Finding | None:
        cycle, run = view.cycle, view.run
        if cycle is None or not cycle.iterations:
            return None
        limit_of, loop, count = view.budgets.get, cycle.anchor, cycle.iterations
        found = None
        limit = limit_of("maxCycleIterations", NEVER)
        if count >= limit and view.iterated:
            found = self._breach(view, count, limit, "iterations", loop, count, "maxCycleIterations")
        limit, used = limit_of("maxCycleRuntimeMs", NEVER), run.at_ms - cycle.since_ms
        if used >= limit and cycle.since_ms:
            found = more_severe(found, self._breach(view, used, limit, "ms", loop + 1, count, "maxCycleRuntimeMs"))
        limit, used = limit_of("maxCycleCost", NEVER), run.ledger.cost_usd_micro - cycle.spent_before
        if used >= limit:
            found = more_severe(found, self._breach(view, used, limit, "micro_usd", loop + 2, count, "maxCycleCost"))
        return found

    def _breach(self, view: View, used: int, limit: int, unit: str, loop: int, count: int, name: str) -> Finding | None:
        subject, layer = f"The cycle through {view.turn.node}", layer_of(view, name)
        return breach(self, used, limit, unit, subject, loop, layer=layer, iteration=count)


DETECTOR = CycleBudget()

_BUDGET = {
    "type": "run.started",
    "graph": {"edges": [["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]]},
    "budgets": {"maxCycleIterations": 2},
}


def _rounds(count: int) -> list[dict[str, object]]:
    return [said(node, f"{node} {n}") for n in range(count) for node in ("coder", "verifier")]


HEALTHY = [
    Example("no limit is set", _rounds(40)),
    Example("within its budget", [_BUDGET, *_rounds(2)]),
]
STUCK = [
    Example("a third iteration where two are allowed", [_BUDGET, *_rounds(4)], "halt", 6),
    Example("without a declared graph", [{"type": "run.started", "budgets": {"maxCycleIterations": 2}}, *_rounds(4)],
            "halt", 6),
]  # fmt: skip
