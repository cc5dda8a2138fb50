"""Findings shared by the budget detectors: a used-up budget warns, an exceeded one halts."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.core.scope import BUDGET_BITS
from streamproc.core.view import View
from streamproc.detectors.base import dollars


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


class BudgetDetector(Protocol):
    """The detector that enforces the budget."""

    @property
    def code(self) -> str: ...

    @property
    def name(self) -> str: ...


def breach(
    detector: BudgetDetector, used: int, limit: int, unit: str, subject: str, loop: int, *, layer: LimitLayer,
    iteration: int | None = None,
) -> Finding | None:  # fmt: skip
    """Return a finding if `used` has reached (warn) or exceeded (halt) `limit`; both in `unit`."""
    if used < limit:
        return None
    over = used > limit
    word = "has exceeded" if over else "has used up"
    return Finding(
        code=detector.code,
        level=Level.HALT if over else Level.WARN,
        loop=loop,
        message=f"{subject} {word} its budget: {_share(used, limit, unit)} ({layer.words}).",
        evidence=Evidence(
            kind=f"{detector.name}_budget",
            used=used,
            limit=limit,
            unit=unit,
            limit_from=layer.name,
            iteration=iteration,
        ),
        reason=BUDGET_EXCEEDED,
        status="budget_exceeded",
    )


def overdue(
    detector: BudgetDetector, used_ms: int, limit_ms: int, subject: str, loop: int, layer: LimitLayer
) -> Finding:
    """Return a halting finding for a time limit that was reached or exceeded."""
    return Finding(
        code=detector.code,
        level=Level.HALT,
        loop=loop,
        message=f"{subject} has reached its time limit: {used_ms / 1000:.0f} of {limit_ms / 1000:.0f} s "
        f"({layer.words}).",
        evidence=Evidence(
            kind=f"{detector.name}_budget", used=used_ms, limit=limit_ms, unit="ms", limit_from=layer.name
        ),
        reason=BUDGET_EXCEEDED,
        status="timed_out",
    )


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
        return f"{used / 1000:.0f} of {limit / 1000:.0f} s"
    return f"{used} of {limit} {unit}"
