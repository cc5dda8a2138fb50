"""Spending limits of runs, sessions, users and tenants: their declaration and validation."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypedDict

from streamproc.errors import InvalidPolicy, Problem, shown
from streamproc.model.budgets import INTEGER_MAX, usd_micro

# The periods for which each level has limits. Runs and sessions end, so theirs is the total; users and tenants do not.
LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "run": ("total",),
    "session": ("total",),
    "user": ("hour", "day", "month"),
    "tenant": ("hour", "day", "month"),
}
UNITS: Final = ("cost_usd", "tokens")

Usd = str | int | float | Decimal


class LimitFields(TypedDict, total=False):
    """The amounts that may be spent; a missing one is unlimited."""

    cost_usd: Usd
    tokens: int


class PeriodFields(TypedDict, total=False):
    """Limits per hour, day or month, in UTC."""

    hour: LimitFields
    day: LimitFields
    month: LimitFields


class LimitsFields(TypedDict, total=False):
    """Limits of each level: of runs and sessions in total, of users and tenants per period."""

    run: LimitFields
    session: LimitFields
    user: PeriodFields
    tenant: PeriodFields


GivenLimits = LimitsFields | Mapping[str, Any]  # the first is for editors; an untyped dict works too


class SpendingLimit(NamedTuple):
    """The limit of one period, in micro-USD and tokens; None means unlimited."""

    cost: int | None = None
    tokens: int | None = None


Limits = Mapping[str, Mapping[str, SpendingLimit]]


def read_limits(given: Mapping[str, Any] | None) -> Limits:
    """Validate declared limits (see `LimitsFields`). Raises `InvalidPolicy` with every mistake."""
    problems: list[Problem] = []
    limits = {level: _read_level(level, fields, problems) for level, fields in (given or {}).items()}
    if problems:
        raise InvalidPolicy(problems)
    return limits


def _read_level(level: str, given: Any, problems: list[Problem]) -> dict[str, SpendingLimit]:
    place = f"limits.{level}"
    if level not in LEVELS:
        problems.append(Problem(place, "unknown level", f"choose from: {', '.join(LEVELS)}"))
        return {}
    if LEVELS[level] == ("total",):
        return {"total": _read_limit(place, given, problems)}
    if not _is_table(place, given, LEVELS[level], problems):
        return {}
    return {period: _read_limit(f"{place}.{period}", fields, problems) for period, fields in given.items()}


def _read_limit(place: str, given: Any, problems: list[Problem]) -> SpendingLimit:
    if not _is_table(place, given, UNITS, problems):
        return SpendingLimit()
    cost = tokens = None
    try:
        cost = usd_micro(given["cost_usd"]) if given.get("cost_usd") is not None else None
    except ValueError as error:
        problems.append(Problem(f"{place}.cost_usd", str(error)))
    try:
        tokens = read_tokens(given.get("tokens"))
    except ValueError as error:
        problems.append(Problem(f"{place}.tokens", str(error)))
    return SpendingLimit(cost, tokens)


def _is_table(place: str, given: Any, names: tuple[str, ...], problems: list[Problem]) -> bool:
    """Return whether `given` is a mapping with only these names; otherwise add the problem."""
    if not isinstance(given, Mapping):
        problems.append(Problem(place, f"expected a mapping, got {shown(given)}", f"with {', '.join(names)}"))
        return False
    unknown = [str(name) for name in given if name not in names]
    if unknown:
        problems.append(Problem(place, f"has no {', '.join(unknown)}", f"choose from: {', '.join(names)}"))
    return not unknown


def read_cost(value: Usd | None) -> int | None:
    """Convert USD to micro-USD; None stays None. Raises `ValueError`."""
    return None if value is None else usd_micro(value)


def read_tokens(value: Any) -> int | None:
    """Validate a number of tokens; None stays None. Raises `ValueError`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INTEGER_MAX:
        raise ValueError(f"expected a whole number of tokens, got {shown(value)}")
    return value
