"""Streaks: the same value again and again, and the last few hashes as evidence."""

from __future__ import annotations

from streamproc.core.run_state import HASH, RECENT_MAX, TAG, Streak


def remember(values: list[int], value: int) -> None:
    """Keep the last few hashes, as loop evidence."""
    values.append(value & HASH)
    if len(values) > RECENT_MAX:
        del values[0]


def extend(streak: Streak | None, value: int, index: int, stamp: int, since: int) -> Streak:
    """Count `value` once an iteration (`stamp`); anything else, or news after the streak began, starts it again."""
    if streak is None:
        return Streak(value, 1, index, stamp)
    if streak.value != value or since > streak.first:
        streak.value, streak.count, streak.first = value, 1, index
    elif streak.stamp != stamp:
        streak.count += 1
    streak.stamp = stamp
    return streak


def said_again(streak: Streak | None, norm: int, index: int, since: int) -> Streak:
    """Count the same text in a row; news after the first of them, or another text, starts again."""
    value = norm & TAG
    if streak is None:
        return Streak(value, 1, index)
    if streak.value != value or since > streak.first:
        streak.value, streak.count, streak.first = value, 1, index
    else:
        streak.count += 1
    return streak
