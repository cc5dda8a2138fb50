"""Log time for people. The core has no clock: time comes with the events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

AT_MS_MAX: Final = 4_102_444_800_000  # the year 2100; a later time is a mistake, and would stop the run's clock


def rfc3339(at_ms: int) -> str:
    """Epoch milliseconds as people and contracts write them, in UTC."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
