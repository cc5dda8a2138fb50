"""Streaks of equal values, and the last few hashes as evidence: shared by the signals of nodes."""

from __future__ import annotations

from streamproc.core.run_state import HASH, RECENT_MAX, TAG, Streak


def extend(streak: Streak | None, value: int, index: int, stamp: int, since: int) -> Streak:
    """Count `value` once an iteration (`stamp`). Another value, or news (`since`) after the start, starts again."""
    if streak is None:
        return Streak(value, 1, index, stamp)
    if streak.value != value or since > streak.first:
        streak.value, streak.count, streak.first = value, 1, index
    elif streak.stamp != stamp:
        streak.count += 1
    streak.stamp = stamp
    return streak


def said_again(streak: Streak | None, norm: int, index: int, since: int) -> Streak:
    """Count equal texts in a row. Another text, or news (`since`) after the first of them, starts the streak again."""
    value = norm & TAG
    if streak is None:
        return Streak(value, 1, index)
    if streak.value != value or since > streak.first:
        streak.value, streak.count, streak.first = value, 1, index
    else:
        streak.count += 1
    return streak


def remember(values: list[int], value: int) -> None:
    """Append a hash, and keep the last `RECENT_MAX` of them as loop evidence."""
    values.append(value & HASH)
    if len(values) > RECENT_MAX:
        del values[0]
