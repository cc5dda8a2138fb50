"""BUDGET010 account: a user or a tenant has spent its budget of the last hour, day or month.

Sees: tokens and cost of all runs of a user or a tenant, on every worker, over the last 60 minutes (in steps of 5
minutes), 24 hours (of 1 hour) and 30 days (of 1 day), in log time. Warns all of their runs at a share of a budget and
halts them all above it. A run that starts later is halted at once, until the window has moved on.

Why: twenty runs of one user can each look harmless. Only their total shows the problem.

False alarms: none if prices are right. A turn with tokens but no price counts its tokens and is reported as
`unpriced`; it is not treated as free. Runs that name no `user` and no `tenant` count towards no account.

Tuning: set `maxUserCostUsdPerHour`, `maxTenantTokensPerDay` and the other account budgets in the policy: for everyone,
for an entry under `tiers` or `tenants`, or for one user under `users`. Detection bounds overspending; use admission to
prevent it.

Reference: deliberation requirement, layer 5: cost per user.
"""

from __future__ import annotations

from typing import Any

from streamproc.core.account_names import SESSION, session_of
from streamproc.core.accounts import EXCEEDED
from streamproc.detectors.base import Example, Finding, Level, RuleSettings, View, dollars, kind, loop_of, spent
from streamproc.detectors.budget_detector import BudgetDetector
from streamproc.model.budgets import BUDGETS
from streamproc.model.wire import BudgetReached


class AccountDetector(BudgetDetector):
    """A detector of budgets of several runs together: an account's event says which level was reached."""

    evidence = "used", "limit", "unit", "rung", "account", "window", "per_minute", "unpriced"

    def reached(self, event: BudgetReached, message: str, action: str, **more: Any) -> Finding:
        """Return the finding about a level: each account, window, limit and level is reported once."""
        level = Level.HALT if action == "halt" else Level.WARN
        loop = loop_of(event.account, event.window, event.unit, event.rung, event.since_ms)
        return self.finding(
            level, loop, message, action=action, anywhere=True, **{"type": "budget.level", **more},
            used=event.used, limit=event.limit, unit=event.unit, rung=event.rung, account=_shown(event.account),
            window=event.window, per_minute=event.per_minute, unpriced=event.unpriced or None,
        )  # fmt: skip


def _shown(account: str) -> str:
    """Return the name of an account without the proof that the runs of a session carry."""
    return f"{SESSION}:{session_of(account)}" if account.startswith(f"{SESSION}:") else account


class AccountBudget(AccountDetector):
    code, name = "BUDGET010", "account"
    budgets = tuple(budget.name for budget in BUDGETS if not budget.declarable)
    kinds = kind.ACCOUNT

    class Limits:
        """Share of the budget, in percent."""

        warn_percent: int = 80  # leaves time to slow down or to request more

    def settings(self, limits: Limits | None) -> RuleSettings:
        return {} if limits is None else {"account_percents": [limits.warn_percent]}

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if not isinstance(event, BudgetReached) or not event.account.startswith(("user:", "tenant:")):
            return None
        owner, _, name = event.account.partition(":")
        span = _SPANS.get(event.window, event.window)
        message = f"{owner.capitalize()} {name.rpartition('/')[2]} has spent {amounts(event)} in the last {span}."
        return self.reached(event, message, "halt" if event.rung == EXCEEDED else "warn")


def amounts(event: BudgetReached) -> str:
    """Return spend and limit for a message, with the number of turns that have no price."""
    if event.unit == "tokens":
        return f"{event.used} of {event.limit} tokens"
    missing = f" (plus {event.unpriced} turns of unknown price)" if event.unpriced else ""
    return f"{dollars(event.used)} of {dollars(event.limit)}{missing}"


_SPANS = {"hour": "60 minutes", "day": "24 hours", "month": "30 days"}
DETECTOR = AccountBudget()
_ACME = {"budgets": {"maxTenantCostUsdPerDay": "1.00"}}
_STARTED = {"type": "run.started", "tenant": "acme"}
_LATER = {"type": "run.started", "tenant": "globex"}
HEALTHY = [
    Example("no limit is set", [_STARTED, *spent("5.00", "5.00")]),
    Example("a tenant within its daily budget", [_STARTED, *spent("0.30", "0.40")], policy=_ACME),
    Example("a run without a user or tenant", spent("0.90", "0.90"), policy=_ACME),
    Example(
        "the same spend again, one day later",
        [_STARTED | {"at": "2026-01-01T00:00:00Z"}]
        + [turn | {"at": f"2026-01-0{day}T12:00:00Z"} for day, turn in enumerate(spent("0.70", "0.70", "0.70"), 1)],
        policy=_ACME,
    ),
]
STUCK = [
    Example("a tenant over its daily budget", [_STARTED, *spent("0.50", "0.35", "0.20")], "halt", 2, policy=_ACME),
    Example("a tenant near its daily budget", [_LATER, *spent("0.50", "0.35")], "warn", 1, policy=_ACME),
]
