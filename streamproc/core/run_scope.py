"""What an agent says about its own run: who it belongs to, its tier, and the budgets that it declares.

The first value of each part of the scope is final, also when the run id is used again. Policy is the maximum of a
budget: a run may lower it, and raise it only where the policy says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.scope import BUDGET_BITS, hash_token, short_name
from streamproc.model.budgets import declared
from streamproc.model.wire import Event


def change_scope(run: RunState, **changes: Any) -> None:
    """Set parts of a run's scope."""
    run.set_scope(msgspec.structs.replace(run.scope, **changes))


def set_scope(run: RunState, event: Event, rules_of: Callable[[RunState], Rules]) -> None:
    """Set the parts of a run's scope that no earlier event has set, and what follows from them."""
    known = run.scope
    named = event.tier if event.tier and not known.named_tier else ""
    session = known.session
    if not session and (event.session_id or event.parent_run_id):
        session = short_name(event.session_id or event.parent_run_id)
    workflow, tenant, user = known.workflow or event.workflow, known.tenant or event.tenant, known.user or event.user
    child = known.child or bool(event.parent_run_id)
    parent = known.parent or event.parent_run_id
    proof = known.proof
    if session != known.session or (event.session_token and not session):
        proof = hash_token(event.session_token) if event.session_token else 0
    same = (workflow, tenant, user) == (known.workflow, known.tenant, known.user)
    placed = (session, child, parent, proof) == (known.session, known.child, known.parent, known.proof)
    if same and not named and placed:
        return
    change_scope(
        run,
        workflow=workflow,
        tenant=tenant,
        user=user,
        session=session,
        child=child,
        parent=parent,
        proof=proof,
        named_tier=known.named_tier or named,
    )
    if same and not named:
        return
    if named:
        change_scope(run, named_tier=rules_of(run).tiers.known(named))
    settle_tier(run, rules_of, named=run.scope.named_tier != known.named_tier)


def settle_tier(run: RunState, rules_of: Callable[[RunState], Rules], *, named: bool) -> None:
    """Set the tier of a run, and lower its budgets to those of its scope; `named`: the run has just named its tier."""
    scope, tiers = run.scope, rules_of(run).tiers
    unknown = tiers.believed and bool(scope.named_tier) and scope.named_tier not in tiers.budgets
    believed = scope.named_tier if tiers.believed and not unknown else ""
    tier = tiers.assigned(scope.tenant, scope.user) or scope.tier or believed
    if (unknown, tier) != (scope.unknown_tier, scope.tier):
        change_scope(run, unknown_tier=unknown, tier=tier)
    rules = rules_of(run)
    budgets = dict(scope.budgets)
    lower = tiers.budgets.get(scope.named_tier, {}) if named and not tier else {}
    for name, value in lower.items():
        if value < budgets.get(name, rules.budgets.get(name, value + 1)):
            budgets[name] = value
    if not run.escalation.resumes:  # what an operator granted may exceed the policy
        budgets = {name: value for name, value in budgets.items() if not _exceeds(name, value, rules)}
    if budgets != scope.budgets:
        change_scope(run, budgets=budgets)


def declare_budgets(run: RunState, budgets: Mapping[str, int] | None, rules: Rules) -> None:
    """Apply the budgets that a run declares. Those above the policy's are noted and have no effect."""
    scope = run.scope
    in_force, bits, capped = dict(scope.budgets), scope.declared, scope.capped
    for name, value in declared(budgets or {}).items():
        if _exceeds(name, value, rules):
            capped |= BUDGET_BITS[name]
        else:
            in_force[name] = value
            bits |= BUDGET_BITS[name]
    if (in_force, bits, capped) != (scope.budgets, scope.declared, scope.capped):
        change_scope(run, budgets=in_force, declared=bits, capped=capped)


def _exceeds(name: str, value: int, rules: Rules) -> bool:
    return name not in rules.overridable and value > rules.budgets.get(name, value)
