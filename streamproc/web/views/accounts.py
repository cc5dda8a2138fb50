"""Budgets that runs share: of sessions, users and tenants, with the hour at which each limit comes."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web

from streamproc.model.budgets import USD_MICRO
from streamproc.model.formats import HOUR_MS, duration, grouped, money
from streamproc.read_model.rows import AccountRow
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.report.tables import captioned
from streamproc.web.keys import MODEL
from streamproc.web.layout import empty, page
from streamproc.web.moments import moment
from streamproc.web.views.small import share_bar

HEADS: Final = ("Who", "Budget", "Spent", "Limit", "Used", "Window", "An hour", "Limit reached")
NUMERIC: Final = frozenset({"Spent", "Limit", "An hour"})


async def accounts(request: web.Request) -> web.Response:
    """Serve the accounts, the fullest first."""
    found = request.app[MODEL].accounts()
    rows = sorted(found, key=lambda one: (-one.spent / one.limit if one.limit else 0.0, -one.spent))
    lead = (
        "What sessions, users and tenants have spent of the budgets that their runs share, and when a limit comes "
        "if they go on at the rate of the last hour."
    )
    body = account_table(rows) if rows else empty(
        "No shared budgets",
        "Accounts appear here when a policy has budgets for sessions, users or tenants, such as ",
        tag("code", "maxUserCostUsd"), ".",
    )  # fmt: skip
    parts = [tag("h1", "Budgets"), tag("p", lead, class_="lead"), tag("div", body, id="accounts", data_live=True)]
    return page("Budgets", Html().join(parts), request, events="view=accounts")


def account_table(rows: list[AccountRow]) -> Html:
    """Return the accounts as a table."""
    now_ms = time.time_ns() // 1_000_000
    made = (_row(one, now_ms) for one in rows)
    return tag("section", captioned("Budgets, the fullest first", "budgets", HEADS, made, numbers=NUMERIC))


def _row(one: AccountRow, now_ms: int) -> Html:
    kind, _, name = one.scope.partition(":")
    return tag(
        "tr",
        tag("td", tag("small", kind), " ", foreign(name, class_="mono")),
        tag("td", one.budget),
        tag("td", _shown(one.spent, one.unit), class_="number"),
        tag("td", _shown(one.limit, one.unit) if one.limit else "—", class_="number"),
        tag("td", share_bar(one.spent, one.limit, f"{one.budget} of {kind}")),
        tag("td", duration(one.window_s * 1_000) if one.window_s else "since it began"),
        tag("td", _shown(one.per_hour, one.unit), class_="number"),
        tag("td", _forecast(one, now_ms)),
    )


def _shown(value: float, unit: str) -> str:
    return money(round(value * USD_MICRO)) if unit == "USD" else f"{grouped(round(value))} {unit}"


def _forecast(one: AccountRow, now_ms: int) -> Html:
    if one.limit and one.spent >= one.limit:
        return tag("span", "reached", class_="sev-halt")
    if one.limit_at_ms is None:
        return tag("span", "not within a day" if one.limit else "—", class_="muted")
    soon = one.limit_at_ms - now_ms < HOUR_MS
    left = f" (in {duration(max(0, one.limit_at_ms - now_ms))})" if one.limit_at_ms > now_ms else NOTHING
    return tag("span", moment(one.limit_at_ms), left, class_="sev-warn" if soon else None)
