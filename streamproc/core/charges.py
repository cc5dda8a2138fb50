"""What runs owe to accounts: from turns that spent something to the statements that `step_account` books."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import xxhash

from streamproc.core.accounts import ACCOUNT_VERSION, TOTAL, AccountRef, Mark, SpendEntry, Statement

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState
    from streamproc.model.wire import Usage

SESSION_NAME_MAX: Final = 40  # characters of a session's name that a run remembers: a UUID has 36
SESSION_BUDGETS: Final = (("tokens", "maxSessionTokens"), ("micro_usd", "maxSessionCostUsd"))


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The limits of accounts in one scope, and the percentages of their rungs. `users` are those of users that policy
    names, in place of `user`. Empty percentages: that detector is off."""

    session: Sequence[Mark] = ()
    session_percents: Sequence[int] = ()
    user: Sequence[Mark] = ()
    users: dict[str, Sequence[Mark]] | None = None
    tenant: Sequence[Mark] = ()
    percents: Sequence[int] = ()

    @property
    def needed(self) -> bool:
        """Whether every run must be charged. Runs that name a session are charged in any case."""
        return bool(self.session or self.user or self.users or self.tenant)


NO_ACCOUNTS: Final = AccountRules()


@dataclass(slots=True)
class Charge:
    """What a run owes for one event; `offset` is the place of that event in its log. Whom it owes is what was known
    right after that event: later ones may be booked with it, or not."""

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
    first: bool
    left: bool
    offset: int


def charge(
    run: RunState, run_id: str, rules: AccountRules, usage: Usage | None, offset: int, *, left: bool = False
) -> Charge:
    """A charge for a turn's measured spend; without usage it only says that the run is there, or has `left`."""
    first, run.charged = not run.charged, True
    tokens = micro_usd = unpriced = 0
    if usage is not None:
        tokens = usage.total_tokens or usage.input_tokens + usage.output_tokens
        micro_usd, unpriced = usage.cost_usd_micro or 0, int(usage.cost_usd_micro is None and tokens > 0)
    return Charge(
        run_id, run.session, run.user, run.tenant, run.child, run.budgets, rules, run.at_ms,
        tokens, micro_usd, unpriced, first, left, offset,
    )  # fmt: skip


def short_name(name: str) -> str:
    """A session's name as a run remembers it: a long one by its hash."""
    return name if len(name) <= SESSION_NAME_MAX else xxhash.xxh3_64_hexdigest(name.encode("utf-8", "surrogatepass"))


def statements(charges: Iterable[Charge], source: int) -> list[Statement]:
    """The charges of one partition's turns, in log order, as one statement for each account that needs it."""
    found: dict[str, Statement] = {}
    places: dict[tuple[str, str], int] = {}
    for one in charges:
        for payer_of in (_session, _user, _tenant):
            account, marks, declared, percents = payer_of(one)
            if not account:
                continue
            statement = found.get(account)
            if statement is None:
                statement = found[account] = Statement(ACCOUNT_VERSION, account, source, [], [])
            place = places.get((account, one.run_id))
            if place is None:
                place = places[account, one.run_id] = len(statement.payers)
                payer = AccountRef(one.run_id, source, one.child, list(marks), list(declared), list(percents))
                statement.payers.append(payer)
            statement.entries.append(
                SpendEntry(place, one.offset, one.at_ms, one.tokens, one.micro_usd, one.unpriced, one.first, one.left)
            )
    return list(found.values())


Paid = tuple[str, Sequence[Mark], Sequence[Mark], Sequence[int]]
"""An account (empty: none), the limits that policy has for it, those declared, the percentages of its rungs."""

_NOBODY: Final[Paid] = ("", (), (), ())


def _session(one: Charge) -> Paid:
    rules = one.rules
    if not rules.session_percents or not (one.session or rules.session):
        return _NOBODY
    budgets = one.budgets
    declared = [Mark(TOTAL, unit, budgets[name]) for unit, name in SESSION_BUDGETS if name in budgets]
    return f"session:{one.session or short_name(one.run_id)}", rules.session, declared, rules.session_percents


def _user(one: Charge) -> Paid:
    rules = one.rules
    marks = rules.users.get(one.user, rules.user) if rules.users else rules.user
    if not one.user or not marks or not rules.percents:
        return _NOBODY
    # Names of users are names within a tenant: two customers may each have an "admin".
    name = f"{one.tenant}/{one.user}" if one.tenant else one.user
    return f"user:{name}", marks, (), rules.percents


def _tenant(one: Charge) -> Paid:
    rules = one.rules
    if not one.tenant or not rules.tenant or not rules.percents:
        return _NOBODY
    return f"tenant:{one.tenant}", rules.tenant, (), rules.percents
