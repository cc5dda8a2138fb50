"""Reruns: the same check with the same answer, byte for byte, while nothing but edits happens in between. One that
fails has the same answer but for times and ids.

A check is any call that is no edit, the only one of its turn, and gets an answer that is neither empty nor that of a
poll, and does not say that the check has passed. Edits that were refused count as well.

Memory: one streak, of the caller whose turn it is (`callers`). Read by LOOP012.
"""

from __future__ import annotations

from typing import Any, Final

from streamproc.core.now import Now
from streamproc.core.records import Record, ccall, cclass, cfunc, final, grow, hash64, i32, mixed, tag32, u32, u64
from streamproc.core.signals.calls import Calls
from streamproc.model.wire import EDITS, FAILED, FAILED_RETRYABLE, FAILED_RUN, NO_ANSWER, PASSED, WAITS, Call

EMPTY: Final = 0x2D06800538D394C2  # xxh3-64 of no text
RERUNS_BYTES: Final = 20  # of a state: a `Reruns` that is not blank


@final
@cclass
class Reruns(Record):
    """The last check of a caller, and how often it has been made again after nothing but edits."""

    value: u32  # tag of the call, its answer and who made it
    count: u32  # how many times; 0: no check
    first: i32  # turn of the first time
    last: i32  # turn of the last time
    edited: i32  # turn of the last edit

    @cfunc
    def copy(self, other: Reruns) -> None:
        """Become equal to another one; of a blank one nothing is stored."""
        if other.is_blank():
            self.clear()
            return
        if self.is_blank():
            grow(RERUNS_BYTES)
        self.value, self.count, self.first = other.value, other.count, other.first
        self.last, self.edited = other.last, other.edited

    @ccall
    def is_blank(self) -> bool:
        return not self.count and not self.edited

    @cfunc
    def observe(self, now: Now, known: Calls) -> bool:
        """Record the calls of a turn, and return whether they make a check again that no edit has changed. `known` are
        those of the run."""
        calls: Any = now.turn.calls
        call: Call = calls[0]
        outcome: u64 = hash64(call.outcome)
        marks: u64 = hash64(call.marks)
        answer: u64
        tag: u32
        if len(calls) > 1:
            self.count = 0
            return False
        if marks & EDITS:
            self.edited = now.index
            return False
        if outcome == FAILED_RETRYABLE:
            return False  # it says nothing about the edits
        answer = hash64(call.norm if outcome in (FAILED, FAILED_RUN) else call.exact)  # what succeeds may make new ids
        if outcome == NO_ANSWER or marks & (WAITS | PASSED) or answer == EMPTY:
            self.count = 0
            return False
        tag = tag32(hash64(call.key) ^ mixed(answer) ^ now.node_tag ^ now.topic)
        if not self.count or self.value != tag or now.novelty.last_progress > self.first:
            self.value, self.count, self.first, self.last = tag, 1, now.index, now.index
            return False
        if self.edited < self.last:
            return False
        if known.is_poll(now, call):
            self.count = 0
            return False
        self.count += 1
        self.last = now.index
        return True
