"""BUDGET010 account: a user or a tenant has spent its budget of the last hour, day or month.

Sees: tokens and cost of all runs of a user, or of a tenant, wherever they run, over the last 60 minutes (in steps of
5), 24 hours (of 1) and 30 days (of 1), in the time of the log. Warns every run of theirs at a share of a budget, and
halts them all above it; a run that starts later is halted at once, until the window has moved on.

Why: twenty runs of one user each look harmless. Only what they cost together says that something is out of hand.

False alarms: none if prices are right. A turn with tokens and without a price counts for tokens, and is shown as
`unpriced`: it is not taken for free. Runs that do not say whose they are (`user`, `tenant`) count for nobody.

Tuning: set `maxUserCostUsdPerHour`, `maxTenantTokensPerDay` and their like in the policy: for all, for a `tiers` or
`tenants` entry, or for one user under `users`. To prevent overspending rather than bound it, use admission.

Reference: deliberation requirement, layer 5: cost per user.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from streamproc.core import kind
from streamproc.core.accounts import EXCEEDED
from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, dollars
from streamproc.model.wire import BudgetReached


@dataclass(frozen=True, slots=True)
class Limits:
    """Share of the budget, in percent."""

    warn_percent: int = 80  # time to slow down, or to ask for more


class AccountBudget:
    """BUDGET010."""

    code = "BUDGET010"
    name = "account"
    kinds = kind.ACCOUNT

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if not isinstance(event, BudgetReached) or event.account.startswith("session:"):
            return None
        who, _, name = event.account.partition(":")
        halts = event.rung == EXCEEDED
        span = _SPANS.get(event.window, event.window)
        return Finding(
            code=self.code,
            level=Level.HALT if halts else Level.WARN,
            loop=loop_of(event),
            message=f"{who.capitalize()} {name.rpartition('/')[2]} has spent {amounts(event)} within {span}.",
            evidence=evidence_of("account_budget", event),
            reason=BUDGET_EXCEEDED,
            status="budget_exceeded",
            type="budget.level",
            action="halt" if halts else "warn",
            anywhere=True,
        )


def evidence_of(kind: str, event: BudgetReached) -> Evidence:
    """What an account's event shows."""
    return Evidence(
        kind=kind,
        used=event.used,
        limit=event.limit,
        unit=event.unit,
        rung=event.rung,
        account=event.account,
        window=event.window,
        per_minute=event.per_minute,
        unpriced=event.unpriced or None,
    )


def amounts(event: BudgetReached) -> str:
    """What was spent of how much, and what may be missing, for a sentence."""
    if event.unit == "tokens":
        return f"{event.used} of {event.limit} tokens"
    missing = f" (and {event.unpriced} turns of unknown price)" if event.unpriced else ""
    return f"{dollars(event.used)} of {dollars(event.limit)}{missing}"


def loop_of(event: BudgetReached) -> int:
    """Tells rungs, limits and windows apart: each is told once."""
    text = f"{event.account}\0{event.window}\0{event.unit}\0{event.rung}\0{event.since_ms}"
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


_SPANS = {"hour": "60 minutes", "day": "24 hours", "month": "30 days"}

DETECTOR = AccountBudget()

_ACME = {"budgets": {"maxTenantCostUsdPerDay": "1.00"}}
_STARTED = {"type": "run.started", "tenant": "acme"}
_LATER = {"type": "run.started", "tenant": "globex"}


def _spent(*amounts: str) -> list[dict[str, object]]:
    return [{"node": "agent", "output": f"step {n}", "usage": {"cost_usd": amount}} for n, amount in enumerate(amounts)]


HEALTHY = [
    Example("nobody set a limit", [_STARTED, *_spent("5.00", "5.00")]),
    Example("a tenant within its day", [_STARTED, *_spent("0.30", "0.40")], policy=_ACME),
    Example("a run of nobody in particular", _spent("0.90", "0.90"), policy=_ACME),
    Example(
        "as much again, but on the next day",
        [_STARTED | {"at": "2026-01-01T00:00:00Z"}]
        + [turn | {"at": f"2026-01-0{day}T12:00:00Z"} for day, turn in enumerate(_spent("0.70", "0.70", "0.70"), 1)],
        policy=_ACME,
    ),
]
STUCK = [
    Example("a tenant over its day", [_STARTED, *_spent("0.50", "0.35", "0.20")], "halt", 2, policy=_ACME),
    Example("a tenant near its limit", [_LATER, *_spent("0.50", "0.35")], "warn", 1, policy=_ACME),
]
