"""Reruns: the same check with the same answer, byte for byte, while nothing but edits happens in between.

A check is any call that is no edit, the only one of its turn, and gets an answer that is neither empty nor that of a
poll, and does not say that the check has passed. Edits that were refused count as well.

Memory: one streak a run. Read by LOOP012.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Record, ccall, cclass, cfunc, final, hash64, i32, mixed, tag32, u32, u64
from streamproc.core.signals.calls import Calls
from streamproc.model.wire import ANSWERED, EDITS, FAILED, FAILED_RUN, PASSED, WAITS, Call

EMPTY: Final = 0x2D06800538D394C2  # xxh3-64 of no text
COUNTED: Final = 3  # from so many on, the view shows it: fewer are not even worth a warning


@final
@cclass
class Reruns(Record):
    """The last check of a run, and how often it has been made again after nothing but edits."""

    value: u32  # tag of the call, its answer and who made it
    count: i32  # how many times; 0: no check
    first: i32  # turn of the first time
    last: i32  # turn of the last time that counted; -1: none
    edited: i32  # turn of the last edit since the check; -1: none

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.last = self.edited = -1

    @cfunc
    def observe(self, now: Now, calls: Calls) -> bool:
        """Record the calls of a turn, and return whether they make a check again that no edit has changed."""
        call: Call = now.turn.calls[0]
        outcome: u64 = hash64(call.outcome)
        marks: u64 = hash64(call.marks)
        tag: u32
        if len(now.turn.calls) > 1:
            self.clear()
            return False
        if marks & EDITS:
            if self.count:
                self.edited = now.index
            return False
        if outcome not in (ANSWERED, FAILED, FAILED_RUN) or marks & (WAITS | PASSED) or hash64(call.exact) == EMPTY:
            self.clear()
            return False
        if calls.is_poll(now, call):
            self.clear()
            return False
        tag = tag32(hash64(call.key) ^ mixed(hash64(call.exact)) ^ now.node_tag ^ now.topic)
        if not self.count or self.value != tag or now.novelty.last_progress > self.first:
            self.value, self.count, self.first, self.last, self.edited = tag, 1, now.index, -1, -1
            return False
        if self.edited < 0:
            return False
        self.count += 1
        self.last, self.edited = now.index, -1
        return self.count >= COUNTED
