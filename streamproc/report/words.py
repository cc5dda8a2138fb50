"""What a report says of kinds, counts and amounts, the same in every format."""

from __future__ import annotations

from typing import Final

from streamproc.errors import plural
from streamproc.model.formats import duration, grouped, money, short
from streamproc.report.model import SpendShown

KIND_WORDS: Final = {
    "new": "something new",
    "repeat": "nothing new",
    "narration": "talk between calls",
    "error": "error",
    "waiting": "waiting: a poll",
    "other": "no evidence",
}
MATCH_WORDS: Final = {
    "first": "first",
    "same": "the same",
    "normalised": "the same but for numbers and times",
    "near": "almost the same",
    "different": "different",
    "unknown": "not comparable",
}


def spent(spend: SpendShown) -> str:
    """Return what a stretch of turns took, without what is not known."""
    parts = [plural(spend.turns, "turn")]
    if spend.tokens:
        parts.append(f"{short(spend.tokens)} tokens")
    if spend.cost_usd_micro:
        parts.append(money(spend.cost_usd_micro))
    if spend.ms:
        parts.append(duration(spend.ms))
    return ", ".join(parts)


def amount(value: int, unit: str) -> str:
    """Return an amount in the unit of a budget."""
    if unit == "micro_usd":
        return money(value)
    return duration(value) if unit == "ms" else f"{grouped(value)} {unit}"


def percent(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{100 * part // whole} %" if whole else "—"
