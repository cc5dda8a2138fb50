"""Log time: the time that comes with the events. The core has no other clock."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

AT_MS_MAX: Final = 4_102_444_800_000  # the year 2100; a later time is a mistake and would freeze the run's clock


def rfc3339(at_ms: int) -> str:
    """Return epoch milliseconds as an RFC 3339 time in UTC, such as ``2026-01-31T12:00:00.000Z``."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03}Z"


@lru_cache(maxsize=1_024)
def _second(at_s: int) -> str:
    """Return the text up to the seconds: events of the same second share it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
