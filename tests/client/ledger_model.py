"""A naive model of admission: it keeps every spend and hold for ever and adds them up for each answer.

The script must give the same answers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from streamproc.client.admission.balances import AccountScope
from streamproc.client.admission.limits import LEVELS, Limits, SpendingLimit

UNITS = ("cost", "tokens")


class Spend(NamedTuple):
    account: tuple[str, str, str]
    at_ms: int
    cost: int
    tokens: int


class Held(NamedTuple):
    accounts: list[tuple[str, str, str]]
    cost: int
    tokens: int
    expires_ms: int


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def window(period: str, ms: int) -> tuple[int, ...]:
    """Return the hour, day or month of a moment."""
    moment = at(ms)
    parts = (moment.year, moment.month, moment.day, moment.hour)
    return parts[: {"total": 0, "month": 2, "day": 3, "hour": 4}[period]]


def renews_ms(period: str, ms: int) -> int:
    """Return when the next period starts; 0 means never."""
    moment = at(ms)
    if period == "total":
        return 0
    if period == "month":
        next_one = datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1, tzinfo=UTC)
    elif period == "day":
        next_one = datetime(moment.year, moment.month, moment.day, tzinfo=UTC) + timedelta(days=1)
    else:
        next_one = datetime(moment.year, moment.month, moment.day, moment.hour, tzinfo=UTC) + timedelta(hours=1)
    return (next_one - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def accounts_of(scope: AccountScope) -> list[tuple[str, str, str]]:
    return [(scope.tenant, level, name) for level, name in scope._asdict().items() if name]


class Ledger:
    """Gives the script's answers, without the time in second place."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._spends: list[Spend] = []
        self._holds: dict[str, Held] = {}
        self._ended: dict[str, tuple[str, int, int]] = {}

    def reserve(
        self, hold_id: str, scope: AccountScope, limits: Limits, asked: tuple[int | None, int | None], ttl_ms: int
    ) -> list[object]:
        if self._ended.get(hold_id, ("",))[0] == "settled":
            return list(self._ended[hold_id])
        accounts = accounts_of(scope)
        cost, tokens = (amount or 0 for amount in asked)
        hold = self._holds.get(hold_id)
        if hold is not None and hold.expires_ms > self.now_ms:
            if (hold.cost, hold.tokens) != (cost, tokens):
                return ["differs", hold.cost, hold.tokens]
        elif refusal := self._refusal(accounts, limits, asked):
            return refusal
        self._ended.pop(hold_id, None)
        self._holds[hold_id] = Held(accounts, cost, tokens, self.now_ms + ttl_ms)
        return ["held", self.now_ms + ttl_ms]

    def extend(
        self, hold_id: str, scope: AccountScope, limits: Limits, asked: tuple[int | None, int | None], ttl_ms: int
    ) -> list[object]:
        if self._ended.get(hold_id, ("",))[0] == "released":
            return ["released"]
        return self.reserve(hold_id, scope, limits, asked, ttl_ms)

    def settle(self, hold_id: str, scope: AccountScope, cost: int, tokens: int) -> list[object]:
        if self._ended.get(hold_id, ("",))[0] != "settled":
            self._holds.pop(hold_id, None)
            self._ended[hold_id] = ("settled", cost, tokens)
            self._spends += [Spend(account, self.now_ms, cost, tokens) for account in accounts_of(scope)]
        return list(self._ended[hold_id])

    def release(self, hold_id: str) -> list[object]:
        if self._ended.get(hold_id, ("",))[0] != "settled":
            self._holds.pop(hold_id, None)
            self._ended[hold_id] = ("released", 0, 0)
        return list(self._ended[hold_id])

    def look(self, scope: AccountScope) -> list[object]:
        seen: list[object] = ["seen"]
        for account in accounts_of(scope):
            seen += [self._held(account, unit) for unit in UNITS]
            seen += [self._spent(account, period, unit) for period in LEVELS[account[1]] for unit in UNITS]
        return seen

    def _refusal(
        self, accounts: list[tuple[str, str, str]], limits: Limits, asked: tuple[int | None, int | None]
    ) -> list[object] | None:
        for number, account in enumerate(accounts, start=1):
            refusals: list[list[object]] = []
            limits_of = limits.get(account[1], {})
            for period in LEVELS[account[1]]:
                for unit, most, ask in zip(UNITS, limits_of.get(period, SpendingLimit()), asked, strict=True):
                    spent, held = self._spent(account, period, unit), self._held(account, unit)
                    needed = 1 if ask is None else ask
                    if most is not None and needed > 0 and needed > most - spent - held:
                        renews = renews_ms(period, self.now_ms)
                        refusals.append(["refused", number, period, unit, most, spent, held, renews])
            if refusals:
                return max(refusals, key=lambda refusal: refusal[-1])  # of those that end together, the first
        return None

    def _spent(self, account: tuple[str, str, str], period: str, unit: str) -> int:
        current = window(period, self.now_ms)
        mine = [one for one in self._spends if one.account == account and window(period, one.at_ms) == current]
        return sum(getattr(one, unit) for one in mine)

    def _held(self, account: tuple[str, str, str], unit: str) -> int:
        live = [one for one in self._holds.values() if account in one.accounts and one.expires_ms > self.now_ms]
        return sum(getattr(one, unit) for one in live)
