"""Streaks of equal values, and the last few hashes as evidence: shared by the signals of nodes."""

from __future__ import annotations

from streamproc.core.run_state import HASH, RECENT_MAX, TAG, Said, Streak


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


def said_again(said: Said | None, norm: int, index: int, since: int, own_since: int, called: int = -1) -> Said:
    """Count equal texts in a row. Another text, or news after the first of them, starts again: `since` is the last news
    for the count behind the gate, `own_since` the last for the count of the node's own turns, and `called` the last
    turn with calls of the node, for both."""
    value = norm & TAG
    if said is None:
        return Said(value, 1, index, -1, 1, index)
    if said.value != value:
        said.value, said.count, said.first, said.own, said.own_first = value, 1, index, 1, index
        return said
    if since > said.first or called > said.first:
        said.count, said.first = 1, index
    else:
        said.count += 1
    if own_since > said.own_first or called > said.own_first:
        said.own, said.own_first = 1, index
    else:
        said.own += 1
    return said


def remember(values: list[int], value: int) -> None:
    """Append a hash, and keep the last `RECENT_MAX` of them as loop evidence."""
    values.append(value & HASH)
    if len(values) > RECENT_MAX:
        del values[0]
