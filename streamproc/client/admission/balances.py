"""Whose money it is: the accounts of a run, their keys in Redis, and what the script says of them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from streamproc.client.admission.limits import LEVELS, Limits, SpendingLimit
from streamproc.errors import InvalidPolicy, Problem, Refused

DAY_MS: Final = 86_400_000
# An account that nobody uses is forgotten: a run and a session after a week, as the workers do; users and tenants
# when no month of theirs can be going on any more.
KEEP_MS: Final = {"run": 7 * DAY_MS, "session": 7 * DAY_MS, "user": 32 * DAY_MS, "tenant": 32 * DAY_MS}
REMEMBER_MS: Final = DAY_MS  # how long a finished hold is known: a settlement that is sent again is booked once
NO_TENANT: Final = "@"  # no quoted name is this


class AccountScope(NamedTuple):
    """Who pays: a run, and whoever it runs for. Empty: nobody in particular."""

    run: str
    session: str = ""
    user: str = ""
    tenant: str = ""


class AdmissionAccount(NamedTuple):
    """What one level of a scope has spent and holds, and what it may spend."""

    level: str
    name: str
    key: str
    limits: Mapping[str, SpendingLimit]


class Balance(NamedTuple):
    """What an account has spent in a period, and what is reserved on it now; micro-USD and tokens."""

    level: str
    name: str
    period: str
    spent_usd_micro: int
    spent_tokens: int
    held_usd_micro: int
    held_tokens: int


class AdmissionAccounts:
    """The accounts of a scope, in the order in which they are asked: run, session, user, tenant.

    All keys of a tenant carry the tenant as their hash tag, since a script needs its keys in one slot of a cluster.
    So names are names within a tenant, and those without a tenant share one tag.
    """

    def __init__(self, scope: AccountScope, limits: Limits, prefix: str) -> None:
        _check(scope, limits)
        self.scope = scope
        self._stem = f"{prefix}:admission:{{{_quoted(scope.tenant) or NO_TENANT}}}"
        self._accounts = [
            AdmissionAccount(level, name, f"{self._stem}:{level}:{_quoted(name)}", limits.get(level, {}))
            for level, name in scope._asdict().items()
            if name
        ]
        self._keys = [key for account in self._accounts for key in (account.key, f"{account.key}:holds")]
        self.arguments = [text for account in self._accounts for text in _arguments(account)]
        """What the script is told of the accounts."""

    def keys(self, hold_id: str) -> list[str]:
        """The keys of a call about this hold."""
        return [f"{self._stem}:hold:{_quoted(hold_id)}", *self._keys]

    def refused(self, answer: Sequence[Any], cost: int | None, tokens: int | None) -> Refused:
        """What the script's refusal says."""
        number, period, unit, limit, spent, held, renews_ms = answer[2:]
        account = self._accounts[number - 1]
        return Refused(
            account.level,
            account.name,
            _text(period),
            "micro_usd" if _text(unit) == "cost" else "tokens",
            asked=(cost if _text(unit) == "cost" else tokens) or 0,
            limit=limit,
            spent=spent,
            held=held,
            renews_at=datetime.fromtimestamp(renews_ms / 1000, UTC) if renews_ms else None,
        )

    def balances(self, answer: Sequence[Any]) -> list[Balance]:
        """What the script saw when it was told to look."""
        numbers = iter(answer[2:])
        found = []
        for account in self._accounts:
            held_cost, held_tokens = next(numbers), next(numbers)
            for period in LEVELS[account.level]:
                spent = next(numbers), next(numbers)
                found.append(Balance(account.level, account.name, period, *spent, held_cost, held_tokens))
        return found


def _check(scope: AccountScope, limits: Limits) -> None:
    """A limit for nobody would limit nothing, silently."""
    if not scope.run:
        raise ValueError("admission needs the id of a run")
    problems = [
        Problem(f"limits.{level}", f"there are limits for a {level}, and none is named", f"say {level}=…")
        for level, name in scope._asdict().items()
        if not name and limits.get(level)
    ]
    if problems:
        raise InvalidPolicy(problems)


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _arguments(account: AdmissionAccount) -> list[str]:
    periods = LEVELS[account.level]
    texts = [str(KEEP_MS[account.level]), str(len(periods))]
    for period in periods:
        limit = account.limits.get(period, SpendingLimit())
        texts += [period, *("" if amount is None else str(amount) for amount in limit)]
    return texts


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
