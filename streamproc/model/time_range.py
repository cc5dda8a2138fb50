"""The wall clock, and times and ages as people write them: `2026-01-01T12:00:00Z`, or `15m` for 15 minutes ago."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from streamproc.model.raw_fields import read_time_ms

UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGE: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)


def wall_ms() -> int:
    """Return the time of this machine in epoch ms."""
    return int(time.time() * 1000)


def read_age_ms(text: str) -> int | None:
    """Return an age in ms; None if the text is none."""
    age = _AGE.fullmatch(text)
    return None if age is None else int(age[1]) * UNITS_MS[age[2]]


def time_or_age_ms(text: str, now_ms: int) -> int:
    """Return the time that a text names, in epoch ms; 0 if it names none."""
    if (age_ms := read_age_ms(text)) is not None:
        return max(1, now_ms - age_ms)
    try:
        return read_time_ms(text)
    except ValueError:
        return 0


def address_time(at_ms: int) -> str:
    """Return a time for an address, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
