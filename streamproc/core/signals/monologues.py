"""Monologues: consecutive turns of one node that consist of almost the same text and nothing else.

Memory: the monologue in progress, one a run. Read by LOOP007.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import (
    Record,
    cclass,
    cfunc,
    distance,
    final,
    flag,
    hash64,
    i32,
    i64,
    mixed,
    tag32,
    u32,
    u64,
)
from streamproc.core.signals.similarity import SHORT, near_bits, topic_simhash
from streamproc.model.wire import Content

GROWTH: Final = 40  # characters by which a text must grow to count as a draft in progress


@final
@cclass
class Monologue(Record):
    """Consecutive turns of one node that consist of almost the same text and nothing else; blank: there is none."""

    sim: u64  # SimHash of the last text; 0: too short for one
    size: i64  # characters of the last text
    grown: i64  # characters by which the text has grown; -1: it has shrunk once
    node: u32  # tag of the node
    value: u32  # tag of the last text
    count: u32  # turns so far
    first: i32  # turn of the first of them
    loose: flag  # whether a short text was only similar, not equal

    @cfunc
    def observe(self, now: Now, text: Content) -> bool:
        """Record a text of a node about a topic, and return whether it continues the monologue in progress."""
        value: u32 = tag32(hash64(text.norm) ^ now.topic)
        size: i64 = text.size
        sim: u64 = topic_simhash(text)
        near: i32 = near_bits(text)
        alike: bool = self.count > 0 and self.node == now.node_tag
        if sim:
            sim ^= mixed(now.topic)
        if self.count and size > max(SHORT, self.size + GROWTH):
            near = -1  # a growing draft: not similar to anything
        alike = alike and (self.value == value or (self.sim != 0 and sim != 0 and distance(self.sim, sim) <= near))
        if not alike:
            self.clear()
            self.node, self.value, self.sim, self.size = now.node_tag, value, sim, size
            self.count, self.first = 1, now.index
            return False
        self.count += 1
        if self.value != value and size < SHORT:
            self.loose = True
        self.grown = self.grown + size - self.size if self.grown >= 0 and self.size <= size else -1
        self.value, self.sim, self.size = value, sim, size
        return True
