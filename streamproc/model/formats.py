"""Money, ages and durations as people read and type them: one form of each, in every command and on every screen."""

from __future__ import annotations

import re
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS}

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(ms|s|m|h|)\Z", re.ASCII)


def read_duration(text: str) -> int:
    """Return a duration in ms: ``10s``, ``500ms``, ``2m``, ``1h``, or seconds. Raises `ValueError`."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise ValueError("expected a duration, such as 10s, 500ms or 2m")
    return round(float(found[1]) * UNITS_MS[found[2]])


def duration(ms: int) -> str:
    """Return a duration, such as ``2 min 5 s``."""
    if ms < 10 * SECOND_MS:
        return f"{ms / SECOND_MS:.1f} s"
    if ms < MINUTE_MS:
        return f"{ms // SECOND_MS} s"
    if ms < HOUR_MS:
        return f"{ms // MINUTE_MS} min {ms % MINUTE_MS // SECOND_MS} s"
    return f"{grouped(ms // HOUR_MS)} h {ms % HOUR_MS // MINUTE_MS} min"


def grouped(value: int) -> str:
    """Return a whole number with thin groups: ``12 345``."""
    return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)
