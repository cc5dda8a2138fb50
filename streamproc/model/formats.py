"""Money, ages, durations and numbers as people read and type them, the same in every command, report and screen."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from streamproc.model.budgets import USD_MICRO

LARGE: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
THIN: Final = "\u202f"  # between groups of three digits
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS}

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(ms|s|m|h|)\Z", re.ASCII)


def read_duration(text: str) -> int:
    """Return a duration in ms: ``10s``, ``500ms``, ``2m``, ``1h``, or seconds. Raises `ValueError`."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise ValueError("expected a duration, such as 10s, 500ms or 2m")
    return round(float(found[1]) * UNITS_MS[found[2]])


def money(micro: int) -> str:
    """Return micro-USD with its unit: ``1\u202f204.00 USD``, ``0.42 USD``, ``0.0042 USD``."""
    return f"{usd(micro)} USD"


def usd(micro: int) -> str:
    """Do the same without the unit, for a column: two decimals, and four below a dollar where they are needed."""
    if abs(micro) >= USD_MICRO:
        return f"{micro / USD_MICRO:,.2f}".replace(",", THIN)
    text = f"{micro / USD_MICRO:.4f}"
    return text.removesuffix("00") if text.endswith("00") else text


def duration(ms: int) -> str:
    """Return how long something took, such as ``2 min 5 s`` or ``18 h``."""
    if ms < 10 * SECOND_MS:
        return f"{ms / SECOND_MS:.1f} s"
    if ms < MINUTE_MS:
        return f"{ms // SECOND_MS} s"
    if ms < HOUR_MS:
        return f"{ms // MINUTE_MS} min {ms % MINUTE_MS // SECOND_MS} s"
    if ms < 10 * HOUR_MS:
        return f"{ms // HOUR_MS} h {ms % HOUR_MS // MINUTE_MS} min"
    return f"{grouped(ms // HOUR_MS)} h"


def age(at_ms: int, now_ms: int) -> str:
    """Return how long ago something was, at most four columns wide: ``12s``, ``5m``, ``3h``, ``2d``; empty for 0."""
    if not at_ms:
        return ""
    ms = max(0, now_ms - at_ms)
    for unit, name in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m")):
        if ms >= unit:
            return f"{ms // unit}{name}"
    return f"{ms // SECOND_MS}s"


def clock(at_ms: int) -> str:
    """Return a time in UTC, such as ``2026-01-31 12:00:00``; empty if it is not known."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if at_ms else ""


def time_of_day(at_ms: int) -> str:
    """Return the time of a day in UTC; empty if it is not known."""
    return clock(at_ms)[11:]


def local_time(at_ms: int, now_ms: int) -> str:
    """Return the time of day in the zone of this machine, with its date unless that is today's."""
    at, now = (datetime.fromtimestamp(ms / 1000, UTC).astimezone() for ms in (at_ms, now_ms))
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def short(value: int) -> str:
    """Return a large number as people say it, to three digits at most: ``950``, ``12 k``, ``2.0 M``, ``310 M``."""
    if abs(value) < 10_000:
        return str(value)
    unit, name = next(one for one in LARGE if abs(value) >= one[0] * 0.9995)
    return f"{value / unit:.{1 if abs(value) < 10 * unit else 0}f} {name}"


def grouped(value: int) -> str:
    """Return a whole number with thin groups: ``12\u202f345``."""
    return f"{value:,}".replace(",", THIN) if abs(value) >= 10_000 else str(value)
