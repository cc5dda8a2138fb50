"""Charges of runs to accounts: from turns that spend to the statements that `step_account` books."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from streamproc.core.account_names import session_name, tree_name
from streamproc.core.accounts import ACCOUNT_VERSION, ENTRIES_MAX, TOTAL, AccountRef, Mark, Statement, closes_session
from streamproc.core.run_state import RunState
from streamproc.core.scope import short_name, user_name
from streamproc.core.session_tree import NO_RULES, TreeEntry, TreeRules, rules_as_stored
from streamproc.core.spend_windows import SpendEntry
from streamproc.model.wire import Usage

SESSION_BUDGETS: Final = (("tokens", "maxSessionTokens"), ("micro_usd", "maxSessionCostUsd"))


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The limits of accounts in one scope. Empty percentages mean that the detector is off."""

    session: Sequence[Mark] = ()
    session_percents: Sequence[int] = ()  # marks of a session's rungs
    session_overridable: Sequence[str] = ()  # units of the session's limits that a run may raise
    user: Sequence[Mark] = ()
    users: dict[str, Sequence[Mark]] | None = None  # by user: limits that replace those of `user`
    tenant: Sequence[Mark] = ()
    percents: Sequence[int] = ()  # marks of the rungs of users and tenants
    tree: TreeRules | None = None  # of the runs of a session; None: nothing watches them
    stored_tree: msgspec.Raw = field(init=False)  # the same, as statements carry them

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored_tree", NO_RULES if self.tree is None else rules_as_stored(self.tree))

    @property
    def needed(self) -> bool:
        """Whether all runs are charged. Runs that name a session always are."""
        limited = self.tree is not None and self.tree.limits
        return bool(self.session or self.user or self.users or self.tenant or limited)


NO_ACCOUNTS: Final = AccountRules()


@dataclass(slots=True)
class Charge:
    """The charge for one event of a run. Accounts are those known right after that event, so the result does not depend
    on which events are booked together.
    """

    run_id: str
    session: str
    user: str
    tenant: str
    child: bool
    budgets: dict[str, int]
    rules: AccountRules
    at_ms: int
    tokens: int
    micro_usd: int
    unpriced: int
    first: bool  # the first charge of the run
    left: bool  # the run has finished
    offset: int  # of the event in its log
    proof: int = 0  # that it belongs to its session
    member: TreeEntry | None = None  # what the tree of its session learns of this event
    spends: bool = True  # False: only the tree learns of it


def charge(
    run: RunState, run_id: str, rules: AccountRules, usage: Usage | None, offset: int, *, left: bool = False
) -> Charge:
    """Return the charge for a turn's spend; without usage, it only reports that the run is active or has `left`."""
    first, run.charged = not run.charged, True
    tokens = micro_usd = unpriced = 0
    if usage is not None:
        tokens = usage.total_tokens or usage.input_tokens + usage.output_tokens
        micro_usd, unpriced = usage.cost_usd_micro or 0, int(usage.cost_usd_micro is None and tokens > 0)
    return Charge(
        run_id, run.scope.session, run.scope.user, run.scope.tenant, run.scope.child, run.scope.budgets, rules,
        run.at_ms, tokens, micro_usd, unpriced, first, left, offset, run.scope.proof,
    )  # fmt: skip


def closes_own_session(run: RunState, rules: AccountRules) -> bool:
    """Whether what this run alone has spent closes its session: a part of the account that the run's own log shows,
    before the account's level arrives there."""
    if not rules.session_percents:
        return False
    general = {mark.unit: mark.limit for mark in rules.session if mark.unit not in rules.session_overridable}
    spent = {"tokens": run.ledger.total_tokens, "micro_usd": run.ledger.cost_usd_micro}
    percents = list(rules.session_percents)
    for unit, name in SESSION_BUDGETS:
        limit = run.scope.budgets.get(name, general.get(unit))
        if limit is not None and closes_session(spent[unit], limit, percents):
            return True
    return False


def statements(charges: Iterable[Charge], source: int) -> list[Statement]:
    """Return the charges of one partition, in log order, as one statement for each account, and for each tree; several
    of one with more than `ENTRIES_MAX` entries, or whose runs are of different scopes."""
    spends: list[Statement] = []
    births: list[Statement] = []
    spending: dict[str, tuple[Statement, dict[str, int]]] = {}
    trees: dict[str, Statement] = {}
    for one in charges:
        if one.member is not None:
            name = tree_name(one.session or short_name(one.run_id), one.proof)
            tree = trees.get(name)
            rules = one.rules.stored_tree
            if tree is None or tree.rules != rules or len(tree.tree) >= ENTRIES_MAX:
                tree = trees[name] = Statement(ACCOUNT_VERSION, name, source, [], [], [], rules)
                births.append(tree)
            tree.tree.append(one.member)
        if not one.spends:
            continue
        for account_of in (_session, _user, _tenant):
            account, marks, declared, percents = account_of(one)
            if not account:
                continue
            known = spending.get(account)
            if known is None or len(known[0].entries) >= ENTRIES_MAX:
                known = spending[account] = Statement(ACCOUNT_VERSION, account, source, [], []), {}
                spends.append(known[0])
            statement, payers = known
            index = payers.get(one.run_id)
            if index is None:
                index = payers[one.run_id] = len(payers)
                overridable = list(one.rules.session_overridable) if account_of is _session else []
                payer = AccountRef(
                    one.run_id, source, one.child, list(marks), list(declared), list(percents), overridable
                )
                statement.payers.append(payer)
            statement.entries.append(
                SpendEntry(index, one.offset, one.at_ms, one.tokens, one.micro_usd, one.unpriced, one.first, one.left)
            )
    return spends + births


Paid = tuple[str, Sequence[Mark], Sequence[Mark], Sequence[int]]
"""An account (empty: none), its limits in the policy, limits that the run declared, the percentages of its rungs."""

_NONE: Final[Paid] = ("", (), (), ())


def _session(one: Charge) -> Paid:
    rules = one.rules
    if not rules.session_percents or not (one.session or rules.session):
        return _NONE
    budgets = one.budgets
    declared = [Mark(TOTAL, unit, budgets[name]) for unit, name in SESSION_BUDGETS if name in budgets]
    account = session_name(one.session or short_name(one.run_id), one.proof)
    return account, rules.session, declared, rules.session_percents


def _user(one: Charge) -> Paid:
    rules = one.rules
    marks = rules.users.get(one.user, rules.user) if rules.users else rules.user
    if not one.user or not marks or not rules.percents:
        return _NONE
    return f"user:{user_name(one.tenant, one.user)}", marks, (), rules.percents


def _tenant(one: Charge) -> Paid:
    rules = one.rules
    if not one.tenant or not rules.tenant or not rules.percents:
        return _NONE
    return f"tenant:{one.tenant}", rules.tenant, (), rules.percents
