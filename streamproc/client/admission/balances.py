"""The accounts of a run, their keys in Redis, and the decoding of the script's answers about them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from streamproc.client.admission.limits import LEVELS, Limits, SpendingLimit
from streamproc.errors import InvalidPolicy, Problem, Refused

DAY_MS: Final = 86_400_000
# An unused account expires: runs and sessions after a week, as in the workers; users and tenants once their latest
# month is certainly over.
KEEP_MS: Final = {"run": 7 * DAY_MS, "session": 7 * DAY_MS, "user": 32 * DAY_MS, "tenant": 32 * DAY_MS}
REMEMBER_MS: Final = DAY_MS  # how long a finished hold is kept: a repeated settlement is booked once
NO_TENANT: Final = "@"  # cannot be a quoted name


class AccountScope(NamedTuple):
    """The names of the paying accounts; an empty name means that the level has none."""

    run: str
    session: str = ""
    user: str = ""
    tenant: str = ""


class AdmissionAccount(NamedTuple):
    """The account of one level of a scope: its Redis key and its limits."""

    level: str
    name: str
    key: str
    limits: Mapping[str, SpendingLimit]


class Balance(NamedTuple):
    """The amounts that an account has spent in a period and holds now, in micro-USD and tokens."""

    level: str
    name: str
    period: str
    spent_usd_micro: int
    spent_tokens: int
    held_usd_micro: int
    held_tokens: int


class AdmissionAccounts:
    """The accounts of a scope, in the order of checking: run, session, user, tenant.

    All keys of a tenant carry the tenant as their hash tag, since a script needs its keys in one slot of a cluster.
    So names are unique within a tenant only, and all accounts without a tenant share one tag.
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
        """The script's arguments about the accounts."""

    def keys(self, hold_id: str) -> list[str]:
        """Return the Redis keys of a call about this hold."""
        return [f"{self._stem}:hold:{_quoted(hold_id)}", *self._keys]

    def refused(self, answer: Sequence[Any], cost: int | None, tokens: int | None) -> Refused:
        """Return the script's refusal as an error."""
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
        """Return the script's answer to ``look``."""
        numbers = iter(answer[2:])
        found = []
        for account in self._accounts:
            held_cost, held_tokens = next(numbers), next(numbers)
            for period in LEVELS[account.level]:
                spent = next(numbers), next(numbers)
                found.append(Balance(account.level, account.name, period, *spent, held_cost, held_tokens))
        return found


def _check(scope: AccountScope, limits: Limits) -> None:
    """Reject limits for a level without a name: they would silently limit nothing."""
    if not scope.run:
        raise ValueError("admission needs a run id, and it is empty")
    problems = [
        Problem(f"limits.{level}", f"there are limits for a {level}, but no {level} is named", f"pass {level}=…")
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
