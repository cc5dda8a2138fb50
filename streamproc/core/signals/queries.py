"""Queries: the same or almost the same question to a node that has answered it before.

Memory: one streak and one SimHash a node, and whether it has answered the last query. Read by LOOP008.
"""

from __future__ import annotations

from streamproc.core.now import Now
from streamproc.core.records import cfunc, distance, hash64, tag32, u32, u64
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.similarity import NEAR, topic_simhash
from streamproc.model.wire import ANSWERED, Call, Content, Turn


@cfunc
def observe_query(now: Now, query: Content) -> bool:
    """Record a query. Return whether the node is asked (almost) the same again and has answered it before."""
    node: NodeState = now.node
    value: u32 = tag32(hash64(query.norm))
    before: u64 = node.query_simhash
    asked: u64 = topic_simhash(query)
    same: bool = node.query.count > 0
    same = same and (node.query.value == value or (before != 0 and asked != 0 and distance(before, asked) <= NEAR))
    node.query_simhash = asked
    if not same:
        node.query.begin(value, 1, now.index, -1)
        node.has_answered = False
        return False
    node.query.count += 1
    return bool(node.has_answered)


@cfunc
def has_answer(turn: Turn) -> bool:
    """Return whether a turn carries an answer: a text, a structured output, a page or the result of a call. What comes
    with errors is none."""
    call: Call
    if turn.errors is not None and turn.errors.count:
        return False
    if turn.output is not None or turn.structured is not None or turn.docs is not None:
        return True
    for call in turn.calls:
        if call.outcome == ANSWERED:
            return True
    return False
