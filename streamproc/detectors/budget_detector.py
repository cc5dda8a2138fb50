"""What the detectors of budgets share: a used-up budget warns, an exceeded one halts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from streamproc.core.decision import BUDGET_EXCEEDED
from streamproc.core.marks import NEVER
from streamproc.core.scope import BUDGET_BITS, Scope
from streamproc.detectors.base import Detector, Finding, Level, View, dollars


class LimitLayer(NamedTuple):
    """Who set a limit: its name in evidence, and its words in a message."""

    name: str
    words: str


def layer_of(view: View, budget: str) -> LimitLayer:
    """Return who set a budget that is in force."""
    run, bit = view.run, BUDGET_BITS.get(budget, 0)
    tier = run.scope.tier or run.scope.named_tier
    if run.scope.granted & bit:
        return LimitLayer("grant", "granted by an operator")
    if budget not in run.scope.budgets:
        return LimitLayer("policy", f"set by the policy, tier {tier}" if tier else "set by the policy")
    if tier and not run.scope.declared & bit:
        return LimitLayer("tier", f"tier {tier}")
    return LimitLayer("run", "declared by the run")


class BudgetDetector(Detector):
    """A detector of usage. The kind of its evidence is its name and `_budget`, unless a finding names another."""

    evidence: tuple[str, ...] = "used", "limit", "unit", "limit_from"
    reason = BUDGET_EXCEEDED
    status = "budget_exceeded"

    def finding(self, level: Level, loop: int, message: str, *, kind: str = "", **more: Any) -> Finding:
        return super().finding(level, loop, message, kind=kind or f"{self.name}_budget", **more)

    def breach(
        self, used: int, limit: int, unit: str, subject: str, loop: int, layer: LimitLayer, **more: Any
    ) -> Finding | None:
        """Return a finding if `used` has reached (warn) or exceeded (halt) `limit`; both in `unit`. `more` are
        arguments of `finding`."""
        if used < limit:
            return None
        over = used > limit
        word = "has exceeded" if over else "has used up"
        message = f"{subject} {word} its budget: {_share(used, limit, unit)} ({layer.words})."
        return self.finding(
            Level.HALT if over else Level.WARN, loop, message,
            used=used, limit=limit, unit=unit, limit_from=layer.name, **more,
        )  # fmt: skip

    def overdue(self, used_ms: int, limit_ms: int, subject: str, loop: int, layer: LimitLayer, **more: Any) -> Finding:
        """Return a halting finding for a time limit that was reached or exceeded; `more` are arguments of `finding`."""
        times = f"{used_ms / 1000:.0f} of {limit_ms / 1000:.0f} s"
        message = f"{subject} has reached its time limit: {times} ({layer.words})."
        return self.finding(
            Level.HALT, loop, message, status="timed_out",
            used=used_ms, limit=limit_ms, unit="ms", limit_from=layer.name, **more,
        )  # fmt: skip


class Measure(NamedTuple):
    """What is measured: its budget, the unit, and the mark (`core.marks`) below which it is not compared."""

    budget: str
    unit: str
    mark: str


class MeasuredBudget(BudgetDetector):
    """A detector whose limits are budgets alone: it compares each of its `measures` with the budget in force."""

    measures: tuple[Measure, ...]

    class Limits:
        """None of its own: the limits are budgets, declared on the run or in the policy under `budgets`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.budgets = tuple([one.budget for one in cls.measures])

    def budget_marks(self, _: Any, budgets: Mapping[str, int], __: Scope) -> dict[str, int]:
        return {one.mark: budgets.get(one.budget, NEVER) for one in self.measures}

    def worst(self, view: View, used: tuple[int, ...], subject: str, loop: int, **evidence: Any) -> Finding | None:
        """Return the most severe finding about what was `used` of each measure (-1: not measured), the first if several
        are equal. Each measure has a loop of its own, from `loop` on."""
        found = None
        for number, (one, amount) in enumerate(zip(self.measures, used, strict=True)):
            limit = view.budgets.get(one.budget, NEVER)
            if amount >= limit:
                layer = layer_of(view, one.budget)
                breach = self.breach(amount, limit, one.unit, subject, loop + number, layer, **evidence)
                found = more_severe(found, breach)
        return found


def more_severe(one: Finding | None, other: Finding | None) -> Finding | None:
    """Return the more severe of two findings; the first if they are equal."""
    if one is None or (other is not None and other.level > one.level):
        return other
    return one


def _share(used: int, limit: int, unit: str) -> str:
    """Return usage and limit for a message, such as `7 of 6 turns`; times are in seconds."""
    if unit == "micro_usd":
        return f"{dollars(used)} of {dollars(limit)}"
    if unit == "ms" and limit >= 1000:
        return f"{used / 1000:.12g} of {limit / 1000:.12g} s"
    return f"{used} of {limit} {unit}"
