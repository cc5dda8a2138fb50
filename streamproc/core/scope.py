"""The scope of a run, its tier, and the budgets that it declares: what an agent says about its own run.

The first value of each part of the scope is final, also when the run id is used again. Policy is the maximum of a
budget: a run may lower it, and raise it only where the policy says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from streamproc.core.charges import short_name
from streamproc.core.run_state import RunState
from streamproc.model.budgets import BUDGETS, declared
from streamproc.model.wire import Event

if TYPE_CHECKING:
    from streamproc.core.rules import Rules


def set_scope(run: RunState, event: Event, rules_of: Callable[[RunState], Rules]) -> None:
    """Set the parts of a run's scope that no earlier event has set, and what follows from them."""
    known = run.workflow, run.tenant, run.user, run.named_tier, run.session
    run.workflow = run.workflow or event.workflow
    run.tenant = run.tenant or event.tenant
    run.user = run.user or event.user
    named = event.tier if event.tier and not run.named_tier else ""
    run.named_tier = run.named_tier or named
    if not run.session and (event.session_id or event.parent_run_id):
        run.session = short_name(event.session_id or event.parent_run_id)
    run.child = run.child or bool(event.parent_run_id)
    if known == (run.workflow, run.tenant, run.user, run.named_tier, run.session):
        return
    run.size_left = 0
    if named:
        run.named_tier = rules_of(run).tiers.known(named)
    settle_tier(run, rules_of, named=run.named_tier != known[3])


def settle_tier(run: RunState, rules_of: Callable[[RunState], Rules], *, named: bool) -> None:
    """Set the tier of a run, and lower its budgets to those of its scope; `named`: the run has just named its tier."""
    tiers = rules_of(run).tiers
    run.unknown_tier = tiers.believed and bool(run.named_tier) and run.named_tier not in tiers.budgets
    believed = run.named_tier if tiers.believed and not run.unknown_tier else ""
    run.tier = tiers.assigned(run.tenant, run.user) or run.tier or believed
    rules = rules_of(run)
    lower = tiers.budgets.get(run.named_tier, {}) if named and not run.tier else {}
    for name, value in lower.items():
        if value < run.budgets.get(name, rules.budgets.get(name, value + 1)):
            run.budgets = run.budgets | {name: value}
    if run.budgets and not run.resumes:  # what an operator granted may exceed the policy
        run.budgets = {name: value for name, value in run.budgets.items() if not _exceeds(name, value, rules)}


def declare_budgets(run: RunState, budgets: Mapping[str, int] | None, rules: Rules) -> None:
    """Apply the budgets that a run declares. Those above the policy's are noted and have no effect."""
    for name, value in declared(budgets or {}).items():
        if _exceeds(name, value, rules):
            run.capped |= BUDGET_BITS[name]
        else:
            run.budgets = run.budgets | {name: value}
            run.declared |= BUDGET_BITS[name]


def capped_budgets(run: RunState) -> list[str]:
    """Return the names of the budgets that the run declared above the policy's limit."""
    return [name for name, bit in BUDGET_BITS.items() if run.capped & bit]


def _exceeds(name: str, value: int, rules: Rules) -> bool:
    return name not in rules.overridable and value > rules.budgets.get(name, value)


# Positions in this table are stored in states: add budgets that a run may declare at its end.
BUDGET_BITS: Final = {budget.name: 1 << n for n, budget in enumerate(one for one in BUDGETS if one.declarable)}
