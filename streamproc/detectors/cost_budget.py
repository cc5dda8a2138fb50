"""BUDGET007 cost: a run has spent more than its tier allows.

Sees: the measured cost of a run (`usage.cost_usd`, in integer micro-USD) against the limit of its tier (free 0.50, pro
2.00, enterprise 10.00 USD) or against `maxCostUsd`. A tier that the policy assigns wins over its general limit, and a
run may declare a lower one. Warns at a share of the limit and halts above it. The default action is
`force_synthesis`: answer with the results so far. A turn with tokens but no price counts as unpriced, never as free.
If the run's cost is limited, the first such turn is a warning, because the limit cannot see its cost. So is a tier that
the policy does not have, if the policy believes what runs name (`tier_from: run`); the case of its letters does not
matter. `stop_reason` of the halt is `cost_budget_exceeded`.

Why: it is the kill switch that works whatever else fails.

False alarms: none if prices are right. Without a tier and a declared limit, cost is counted and shown but not limited.

Tuning: set `maxCostUsd` in the policy, or change and assign its tiers. A run may declare `maxCostUsd` on `run.started`:
any where the policy sets none, a lower one elsewhere, and a higher one where the policy says `overridable`. If
publishers send tokens but no cost, list the `prices` of the models in the policy.

Reference: deliberation requirement, layer 5: cost-based kill switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamproc.core.marks import first_of
from streamproc.core.scope import Scope
from streamproc.detectors.base import Example, Finding, Level, View, dollars, kind, spent, started
from streamproc.detectors.budget_detector import BudgetDetector, layer_of
from streamproc.errors import shown
from streamproc.model.wire import Turn

STOP: Final = "cost_budget_exceeded"  # `stop_reason` in the requirement's words
NAME_SHOWN: Final = 40  # characters of a tier's name in a message


class CostBudget(BudgetDetector):
    code, name = "BUDGET007", "cost"
    budgets = ("maxCostUsd",)
    kinds = kind.SPENDING | kind.STARTED
    evidence = (*BudgetDetector.evidence, "count", "reason")

    class Limits:
        """The limit itself is a budget (`maxCostUsd`) or follows from the tier."""

        warn_percent: int = 80  # leaves time to finish
        warn_unpriced: int = 1  # turns with tokens but no price: a single one makes the measured cost too low

    def budget_marks(self, limits: Limits, budgets: Mapping[str, int], scope: Scope) -> dict[str, int]:
        if scope.unknown_tier:
            return {"cost_usd_micro": 0}
        if "maxCostUsd" not in budgets:
            return {}
        warn = -(-budgets["maxCostUsd"] * limits.warn_percent // 100)
        return {"cost_usd_micro": warn, "unpriced": first_of(limits.warn_unpriced)}

    def check(self, view: View, limits: Limits) -> Finding | tuple[Finding, ...] | None:
        found = self._spent(view, limits) if type(view.event) is Turn else None
        if not view.run.scope.unknown_tier:
            return found
        return (self._unknown_tier(view), found) if found is not None else self._unknown_tier(view)

    def _unknown_tier(self, view: View) -> Finding:
        limit = view.budgets.get("maxCostUsd")
        applies = f"the limit of {dollars(limit)} for runs without a tier applies" if limit else "no limit applies"
        message = f"The policy has no tier {shown(view.run.scope.named_tier[:NAME_SHOWN])}, so {applies}."
        return self.finding(Level.WARN, 2, message, kind="unknown_tier", limit=limit, unit="micro_usd")

    def _spent(self, view: View, limits: Limits) -> Finding | None:
        limit, used = view.budgets.get("maxCostUsd"), view.run.ledger.cost_usd_micro
        if limit is None:
            return None
        if used * 100 < limit * limits.warn_percent:
            return self._unpriced(view, limit, limits)
        over, layer = used > limit, layer_of(view, "maxCostUsd")
        message = f"The run has spent {dollars(used)} of its {dollars(limit)} budget ({layer.words})."
        return self.finding(
            Level.HALT if over else Level.WARN, 0, message, stop=STOP if over else "",
            used=used, limit=limit, unit="micro_usd", limit_from=layer.name, reason=STOP if over else None,
        )  # fmt: skip

    def _unpriced(self, view: View, limit: int, limits: Limits) -> Finding | None:
        count = view.run.ledger.unpriced
        if not 0 < limits.warn_unpriced <= count or self.reported(view, 1, Level.WARN):
            return None
        model = f" ({view.turn.model[:80]})" if view.turn.model else ""
        message = f"A turn{model} used tokens that have no price, so the {dollars(limit)} budget cannot count them."
        return self.finding(Level.WARN, 1, message, kind="unpriced_usage", count=count, limit=limit, unit="micro_usd")


DETECTOR = CostBudget()


_FREE = {"type": "run.started", "tier": "free"}
HEALTHY = [
    Example("no limit is set", spent("5.00", "5.00", "5.00")),
    Example("within the free tier", [_FREE, *spent("0.20", "0.15")]),
    Example("no price, but no limit on cost either", [{"node": "a", "usage": {"input_tokens": 10**6}}]),
    Example("a long turn that costs nothing", [_FREE, {"node": "a", "usage": {"duration_ms": 10**6}}]),
]
STUCK = [
    Example("tokens without a price", [_FREE, *({"node": "a", "usage": {"input_tokens": 10**6}} for _ in range(9))],
            "warn", 0),
    Example("over the free tier", [_FREE, *spent("0.20", "0.20", "0.15")], "halt", 2),
    Example("near the limit that the run declared", [started(maxCostUsd="1"), *spent("0.50", "0.35")], "warn", 1),
]  # fmt: skip
