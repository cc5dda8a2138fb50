"""What the budget detectors share: used up is a warning, exceeded is a halt."""

from __future__ import annotations

from typing import Final, Protocol

from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.detectors.base import dollars

NEVER: Final = 1 << 64  # the limit where there is none


class Coded(Protocol):
    """Whose budget it is."""

    @property
    def code(self) -> str: ...

    @property
    def name(self) -> str: ...


def breach(
    detector: Coded, used: int, limit: int, unit: str, who: str, loop: int, iteration: int | None = None
) -> Finding | None:
    """A finding where `used` has reached (warn) or exceeded (halt) `limit`; both in `unit`."""
    if used < limit:
        return None
    over = used > limit
    word = "has exceeded" if over else "has used up"
    return Finding(
        code=detector.code,
        level=Level.HALT if over else Level.WARN,
        loop=loop,
        message=f"{who} {word} its budget: {_share(used, limit, unit)}.",
        evidence=Evidence(kind=f"{detector.name}_budget", used=used, limit=limit, unit=unit, iteration=iteration),
        reason=BUDGET_EXCEEDED,
        status="budget_exceeded",
    )


def overdue(detector: Coded, used_ms: int, limit_ms: int, who: str, loop: int) -> Finding:
    """A finding that halts: something has taken all the time it had, or more."""
    return Finding(
        code=detector.code,
        level=Level.HALT,
        loop=loop,
        message=f"{who} has run out of time: {used_ms / 1000:.0f} s of {limit_ms / 1000:.0f} s.",
        evidence=Evidence(kind=f"{detector.name}_budget", used=used_ms, limit=limit_ms, unit="ms"),
        reason=BUDGET_EXCEEDED,
        status="timed_out",
    )


def graver(one: Finding | None, other: Finding | None) -> Finding | None:
    """Of two findings the one that halts; the first where both are as bad."""
    if one is None or (other is not None and other.level > one.level):
        return other
    return one


def _share(used: int, limit: int, unit: str) -> str:
    """For people: `7 of 6 turns`, and time in seconds."""
    if unit == "micro_usd":
        return f"{dollars(used)} of {dollars(limit)}"
    if unit == "ms" and limit >= 1000:
        return f"{used / 1000:.0f} of {limit / 1000:.0f} s"
    return f"{used} of {limit} {unit}"
