"""Text-only streaks: consecutive turns of one node that consist of a text and nothing else, in whatever words.

Any evidence of work in between ends a streak, whichever node reports it; a turn without evidence neither counts nor
ends one. Memory: the streak in progress, one a run. Read by LOOP010, and by STALL007: a run whose last turn was a text
may wait for a person.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Record, ccall, cclass, cfunc, final, i32, i64, u32
from streamproc.model.wire import Content, Turn

PAGE: Final = 1_500  # characters; a text of a page may be the work itself, such as a chapter


@final
@cclass
class TextStreak(Record):
    """Consecutive turns of one node that consist of a text and nothing else; a count of 0: there are none."""

    size: i64  # characters of the last text
    node: u32  # tag of the node
    topic: u32  # tag of the task; 0: none
    count: u32  # turns so far
    pages: u32  # those whose text is a page or longer
    not_longer: u32  # turns whose text was not longer than the one before; a draft has few
    first: i32  # turn of the first of them
    last_text_turn: i32  # the last text-only turn without a hand-over: the run may wait for a person; -1: none
    text_turn_before: i32  # ... and the one before it

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.last_text_turn = self.text_turn_before = -1

    @ccall
    def end(self) -> None:
        """End the streak."""
        self.count = 0

    @cfunc
    def observe(self, now: Now, text: Content) -> None:
        """Record a text-only turn: it starts or extends a streak."""
        size: i64 = text.size
        self.last_text_turn, self.text_turn_before = now.index, self.last_text_turn
        if not self.count or self.node != now.node_tag or self.topic != now.topic:
            self.node, self.topic, self.first, self.count = now.node_tag, now.topic, now.index, 1
            self.pages, self.size, self.not_longer = size >= PAGE, size, 0
            return
        self.count += 1
        if size <= self.size:
            self.not_longer += 1
        if size >= PAGE:
            self.pages += 1
        self.size = size

    @ccall
    def may_wait(self, index: i32) -> bool:
        """Whether a run without open turns may wait for a person after this turn, which must be one of the last two."""
        return self.last_text_turn >= 0 and index in (self.last_text_turn, self.text_turn_before)


@cfunc
def is_text_only(turn: Turn) -> bool:
    """Whether a turn without calls consists of a text and nothing else: no result, no query, no hand-over, no round."""
    if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
        return False
    return not (
        turn.tests or turn.artifact or turn.structured or turn.docs or turn.query or turn.next or turn.errors
        or turn.progress
    )  # fmt: skip
