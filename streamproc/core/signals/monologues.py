"""Monologues: consecutive turns of one node that consist of almost the same text and nothing else.

Memory: the monologue in progress, one a run. Read by LOOP007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

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
def observe_monologue(run: RunState, node_tag: u32, text: Content, topic: u32, index: i32) -> bool:
    """Record a text of a node about a topic, and return whether it continues the monologue in progress."""
    before: Monologue = run.monologue
    value: u32 = tag32(hash64(text.norm) ^ topic)
    size: i64 = text.size
    sim: u64 = topic_simhash(text)
    near: i32 = near_bits(text)
    alike: bool = before.count > 0 and before.node == node_tag
    if sim:
        sim ^= mixed(topic)
    if before.count and size > max(SHORT, before.size + GROWTH):
        near = -1  # a growing draft: not similar to anything
    alike = alike and (before.value == value or (before.sim != 0 and sim != 0 and distance(before.sim, sim) <= near))
    if not alike:
        before.clear()
        before.node, before.value, before.sim, before.size = node_tag, value, sim, size
        before.count, before.first = 1, index
        return False
    before.count += 1
    if before.value != value and size < SHORT:
        before.loose = True
    before.grown = before.grown + size - before.size if before.grown >= 0 and before.size <= size else -1
    before.value, before.sim, before.size = value, sim, size
    return True
