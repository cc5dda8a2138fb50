"""The names and units of all budgets: one table for ``run.started`` and for policies.

Names are compared without case and underscores, so ``maxTurnsPerNode`` and ``max_turns_per_node`` are one. Money is
given in USD, as decimal text or a number, and kept in integer micro-USD.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from streamproc.errors import shown

USD_MICRO: Final = 1_000_000
INTEGER_MAX: Final = 2**53


class Budget(NamedTuple):
    """One budget: its public name, unit, aliases, what it limits, its hard ceiling, whether a run may declare it, and
    its floor: a value outside floor and ceiling is refused.

    Only the policy may set a budget that is not `declarable`.
    """

    name: str
    unit: str
    aliases: tuple[str, ...]
    limits: str
    ceiling: int | None = None
    declarable: bool = True
    floor: int = 0


def account_budget(owner: str, unit: str, window: str) -> str:
    """Return the name of a user's or a tenant's budget, such as ``maxUserTokensPerHour``."""
    return f"max{owner.title()}{'CostUsd' if unit == 'micro_usd' else 'Tokens'}Per{window.title()}"


BUDGETS: Final = (
    Budget("maxTurnsPerNode", "turns", (), "turns of one node in a run"),
    Budget("maxRuntimeMsPerNode", "ms", (), "runtime of one node in a run: since `turn.started`, or as reported"),
    Budget("maxCycleIterations", "iterations", (), "iterations of one cycle"),
    Budget("maxCycleRuntimeMs", "ms", (), "log time since a run entered a cycle"),
    Budget("maxCycleCost", "micro_usd", ("maxCycleCostUsd",), "spend since a run entered a cycle, in USD"),
    Budget("maxSteps", "turns", ("steps", "recursionLimit"), "graph steps (turns) of a run"),
    Budget("maxCostUsd", "micro_usd", ("maxCost", "costUsd"), "cost of a run, in USD"),
    Budget("maxRounds", "rounds", (), "rounds of a deliberation", 15, floor=5),
    Budget("turnTimeoutMs", "ms", (), "one turn"),
    Budget("maxTokens", "tokens", (), "tokens of one turn"),
    Budget("maxTaskTokens", "tokens", (), "tokens of a task that was delegated without its own budget"),
    Budget("maxSessionTokens", "tokens", (), "tokens of a session, over all its runs"),
    Budget("maxSessionCostUsd", "micro_usd", ("maxSessionCost",), "cost of a session, over all its runs, in USD"),
    Budget("maxRuntimeMs", "ms", ("timeoutMs",), "wall clock of a run"),
    Budget("maxSessionRuns", "runs", (), "runs born in a session"),
    Budget("maxConcurrentRuns", "runs", (), "runs of a session that are alive at once"),
    Budget("maxDepth", "levels", (), "levels of child runs below the root of a session"),
    Budget("maxSpawnsPerMinute", "runs", ("maxBirthsPerMinute",), "runs born in a session within a minute"),
    Budget("maxSameChildren", "runs", (), "runs of a session that are started with the same prompt"),
    *(
        Budget(account_budget(owner, unit, window), unit, (), f"{what} of a {owner}'s runs within {span}", None, False)
        for owner in ("user", "tenant")
        for unit, what in (("tokens", "tokens"), ("micro_usd", "cost, in USD,"))
        for window, span in (("hour", "60 minutes"), ("day", "24 hours"), ("month", "30 days"))
    ),
)  # fmt: skip


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


_BY_NAME: Final = {_plain(known): budget for budget in BUDGETS for known in (budget.name, *budget.aliases)}
_DECLARABLE: Final = {budget.name: budget for budget in BUDGETS if budget.declarable}


def find_budget(name: str) -> Budget:
    """Return the budget with this name or alias. Raises `KeyError` that lists the known names."""
    try:
        return _BY_NAME[_plain(name)]
    except KeyError:
        raise KeyError(f"no such budget; use one of: {', '.join(budget.name for budget in BUDGETS)}") from None


def usd_micro(value: Any) -> int:
    """Convert USD, as decimal text or a number, to integer micro-USD. Raises `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise ValueError(f"expected USD as decimal text or a number, got {shown(value)}")
    try:
        amount = Decimal(str(value))
    except (InvalidOperation, ValueError):
        raise ValueError(f"expected USD as decimal text or a number, got {shown(value)}") from None
    if not amount.is_finite() or amount < 0 or amount > 10**9:
        raise ValueError(f"expected between 0 and 1 000 000 000 USD, got {shown(value)}")
    return int((amount * USD_MICRO).to_integral_value())


def budget_value(budget: Budget, value: Any) -> int:
    """Convert a budget's value to an integer in its unit. Raises `ValueError`."""
    if budget.unit == "micro_usd":
        return usd_micro(value)
    fraction = isinstance(value, float) and not value.is_integer()
    if fraction or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a whole number of {budget.unit}, got {shown(value)}")
    if not 0 < value <= INTEGER_MAX:
        raise ValueError(f"expected more than 0 {budget.unit}, got {shown(value)}")
    return int(value)


def declared(budgets: Mapping[str, int]) -> dict[str, int]:
    """Return the known budgets among those that a run declared, without those out of range: they are refused."""
    return {
        name: min(value, INTEGER_MAX)
        for name, value in budgets.items()
        if (known := _DECLARABLE.get(name)) is not None and value >= 0 and in_range(known, value)
    }


def in_range(budget: Budget, value: int) -> bool:
    """Return whether a value is between the floor and the ceiling of a budget."""
    return budget.ceiling is None or budget.floor <= value <= budget.ceiling
