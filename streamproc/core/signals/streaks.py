"""Streaks: the same value several times in a row. Other signals keep them, for each node or for the run."""

from __future__ import annotations

from typing import Final

from streamproc.core.records import Record, ccall, cclass, cfunc, final, grow, i32, tag32, u32, u64

STREAK_BYTES: Final = 20  # of a state: a `Streak` or a `Said` that is not blank


@final
@cclass
class Streak(Record):
    """The same value several times in a row; blank before the first one."""

    value: u64  # tag or count that repeats
    count: u32  # how many times
    first: i32  # turn of the first time
    stamp: i32  # iteration in which it was last counted: once an iteration

    @cfunc
    def begin(self, value: u64, count: u32, index: i32, stamp: i32) -> None:
        """Start with a value."""
        if not self.count:
            grow(STREAK_BYTES)
        self.value, self.count, self.first, self.stamp = value, count, index, stamp

    @cfunc
    def extend(self, value: u64, index: i32, stamp: i32, since: i32) -> None:
        """Count a value once an iteration (`stamp`). Another value, or news (`since`) after the start, starts again."""
        if not self.count or self.value != value or since > self.first:
            self.begin(value, 1, index, stamp)
        elif self.stamp != stamp:
            self.count += 1
        self.stamp = stamp

    @cfunc
    def copy(self, other: Streak) -> None:
        """Become equal to another one."""
        if other.count and not self.count:
            grow(STREAK_BYTES)
        self.value, self.count, self.first, self.stamp = other.value, other.count, other.first, other.stamp

    @ccall
    def is_blank(self) -> bool:
        return not self.count


@final
@cclass
class Said(Record):
    """The same text or structured output of a node several times in a row: each count has its own `Gate`."""

    value: u32  # tag of the text
    count: u32  # how many times, behind the gate of LOOP001; 0: there was none yet
    own: u32  # how many times in the node's own turns, whatever words others found
    first: i32  # turn of the first time
    own_first: i32  # turn of the first of `own`

    @cfunc
    def extend(self, norm: u64, index: i32, since: i32, own_since: i32, called: i32) -> None:
        """Count equal texts in a row. Another text, or news after the first of them, starts again: `since` is the last
        news for the count behind the gate, `own_since` the last for the count of the node's own turns, and `called` the
        last turn with calls of the node, for both."""
        value: u32 = tag32(norm)
        if not self.count or self.value != value:
            if not self.count:
                grow(STREAK_BYTES)
            self.value, self.count, self.first, self.own, self.own_first = value, 1, index, 1, index
            return
        if since > self.first or called > self.first:
            self.count, self.first = 1, index
        else:
            self.count += 1
        if own_since > self.own_first or called > self.own_first:
            self.own, self.own_first = 1, index
        else:
            self.own += 1

    @cfunc
    def interrupt(self) -> None:
        """Let the next text start again, even if it is the same."""
        self.value = 0

    @ccall
    def is_blank(self) -> bool:
        return not self.count
