"""Which running runs are lost: their publisher seems to be gone, because nothing came of them for a time of the policy.

It decides nothing: an event brings a run back. So it is derived where runs are shown, by this one function, from the
status and the time of the last event. A worker publishes the status of a run that works every ten minutes of log time
(`STATUS_EVERY_MS`), so the topic `runs` alone is enough.
"""

from __future__ import annotations

from typing import Final

STATUS_EVERY_MS: Final = 600_000  # 5 000 runs that work publish eight statuses a second


def is_lost(status: str, at_ms: int, now_ms: int, lost_after_ms: int) -> bool:
    """Return whether a run of this status, last heard of at `at_ms` (0: not known), is lost now; 0 ms after: never.

    `now_ms` is a time up to which workers have decided: while none does, every run seems to be silent.
    """
    return status == "running" and 0 < at_ms < now_ms - lost_after_ms and lost_after_ms > 0
