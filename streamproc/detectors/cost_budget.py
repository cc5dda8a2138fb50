"""BUDGET007 cost: a run has cost more than its tier allows.

Sees: the measured cost of a run (`usage.cost_usd`, in integer micro-USD) against the limit of its tier: free 0.50,
pro 2.00, enterprise 10.00 USD; or against `maxCostUsd`: what the run declares wins over its tier, and its tier over
what a policy says for all. Warns at a share of it, halts above it. The
default action is `force_synthesis`: answer with what there is.

Why: the kill switch that works whatever else fails.

A turn with tokens and without a price is counted as unpriced, never as free: where the cost of a run is limited, this
is a warning, once, since the limit cannot see those turns.

False alarms: none if prices are right. A run without a tier and without a declared limit is counted and shown, not
limited.

Tuning: declare `maxCostUsd` or a `tier` on `run.started`; change tiers in the policy under `tiers`. Name the
`prices` of models in the policy where publishers send tokens and no cost.

Reference: deliberation requirement, layer 5: cost-based kill switch.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.core.escalation import already_reported
from streamproc.core.view import View
from streamproc.detectors.base import Example, dollars


@dataclass(frozen=True, slots=True)
class Limits:
    """The limit itself is a budget (`maxCostUsd`) or follows from the tier."""

    warn_percent: int = 80  # time to come to an end
    warn_unpriced: int = 1  # turns with tokens and without a price: one is enough to make a limit on cost untrue


class CostBudget:
    """BUDGET007."""

    code = "BUDGET007"
    name = "cost"
    kinds = kind.SPENDING

    def check(self, view: View, limits: Limits) -> Finding | None:
        limit = view.budgets.get("maxCostUsd")
        used = view.run.ledger.cost_usd_micro
        if limit is None:
            return None
        if used * 100 < limit * limits.warn_percent:
            return self._unpriced(view, limit, limits)
        over = used > limit
        tier = f" (tier {view.run.tier})" if view.run.tier else ""
        return Finding(
            code=self.code,
            level=Level.HALT if over else Level.WARN,
            loop=0,
            message=f"The run has cost {dollars(used)} of {dollars(limit)}{tier}.",
            evidence=Evidence(kind="cost_budget", used=used, limit=limit, unit="micro_usd"),
            reason=BUDGET_EXCEEDED,
            status="budget_exceeded",
        )

    def _unpriced(self, view: View, limit: int, limits: Limits) -> Finding | None:
        count = view.run.ledger.unpriced
        if not 0 < limits.warn_unpriced <= count or already_reported(view.run, self.code, 1, Level.WARN, view.index):
            return None
        model = f" ({view.turn.model[:80]})" if view.turn.model else ""
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=1,
            message=f"A turn has tokens and no price{model}: its cost is not seen by the budget of {dollars(limit)}.",
            evidence=Evidence(kind="unpriced_usage", count=count, limit=limit, unit="micro_usd"),
            reason=BUDGET_EXCEEDED,
            status="budget_exceeded",
        )


DETECTOR = CostBudget()


def _spent(*amounts: str) -> list[dict[str, object]]:
    return [{"node": "agent", "output": f"step {n}", "usage": {"cost_usd": amount}} for n, amount in enumerate(amounts)]


_FREE = {"type": "run.started", "tier": "free"}

HEALTHY = [
    Example("nobody set a limit", _spent("5.00", "5.00", "5.00")),
    Example("within the free tier", [_FREE, *_spent("0.20", "0.15")]),
    Example("nothing is limited, so prices do not matter", [{"node": "a", "usage": {"input_tokens": 10**6}}]),
    Example("time is not money", [_FREE, {"node": "a", "usage": {"duration_ms": 10**6}}]),
]
STUCK = [
    Example("no price is not free", [_FREE, *({"node": "a", "usage": {"input_tokens": 10**6}} for _ in range(9))],
            "warn", 0),
    Example("over the free tier", [_FREE, *_spent("0.20", "0.20", "0.15")], "halt", 2),
    Example("near the limit of the run", [{"type": "run.started", "budgets": {"maxCostUsd": "1"}},
                                          *_spent("0.50", "0.35")], "warn", 1),
]  # fmt: skip
