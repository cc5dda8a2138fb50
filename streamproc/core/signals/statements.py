"""Statements: texts, structured outputs, artifacts and pages of nodes, as news or as repeats.

A text between two calls of one node is *narration*: neither news nor a step. Only when another node takes the next turn
is it known to be a message; until then it is pending (`Pending`, one a run).
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Record, cclass, cfunc, final, hash64, i32, tag32, u32, u64
from streamproc.core.signals.periods import STATEMENTS, STEPS
from streamproc.model.wire import Turn

# Nodes for which users' messages are published as turns: their words are news for every gate but `none`.
USER_NODES: Final = frozenset({"user", "User", "human", "Human", "customer", "Customer"})
# Bit of `Pending.value`, of which statements use the low half: words of a node whose work is files.
NO_WORK: Final = 1 << 63


@final
@cclass
class Pending(Record):
    """A text that is a message or narration: not yet known which."""

    value: u64  # hash of the text, with its node and topic; the highest bit: `NO_WORK`
    node: u32  # tag of the node that wrote it; 0: no text is pending
    turn: i32

    @cfunc
    def settle(self, now: Now) -> None:
        """Decide on the pending text: a message if another node takes this turn, narration if its own node does."""
        node: u32 = self.node
        self.node = 0
        if node != now.node_tag:
            _record(now, self.value, self.turn, True, True)


@cfunc
def observe_statement(now: Now, topic: u64) -> None:
    """Record the statement of a turn, and report the periods it extends. Texts beside calls are narration: skipped."""
    turn: Turn = now.turn
    node_tag: u64 = now.node_tag
    tag: u64 = node_tag
    if turn.output is not None and not turn.calls:
        tag ^= hash64(turn.output.norm) ^ topic
    if turn.structured is not None:
        tag ^= hash64(turn.structured.norm) >> 1 ^ topic
    if turn.docs is not None:
        tag ^= hash64(turn.docs.norm) >> 2
    if turn.artifact is not None:
        tag ^= hash64(turn.artifact.norm) >> 3
    if tag != node_tag:
        _record(now, tag, now.index, not turn.calls, turn.query is None and turn.node not in USER_NODES)


@cfunc
def _record(now: Now, statement: u64, index: i32, step: bool, words: bool) -> None:
    """Record a statement as news or repeat, and add it to the streams; report the periods that it extends.

    The answer to a query and what a person says are results, all other statements are `words`.
    """
    tag: u32 = tag32(statement) & ~1
    if now.novelty.remember(statement):
        if words:
            now.novelty.note_words(index, STEPS, STATEMENTS)
        else:
            now.novelty.note_news(index, STEPS, STATEMENTS)
    if step:
        now.streams.observe(STEPS, tag, index)
    now.streams.observe(STATEMENTS, tag, index)
