"""Queries: the same or almost the same question to a node that has answered it before, in the same context.

The context is the task and the request, what a person has said, measured progress, and what others have found since:
new answers of their calls, and new artifacts or pages. Words of others are no context: they ask. Neither is a query
repeated that brings a new result.

Memory: one streak a node, whose `stamp` is the turn in which the context began, the words of the query, and whether the
node has answered it. Read by LOOP007.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Table, cfunc, distance, hash64, i32, mixed, tag32, u32, u64
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.similarity import NEAR, SHORT
from streamproc.model.wire import ANSWERED, Call, Content, Turn

WORDS_MIN: Final = 2  # one word more than a single word is another question
WORD_BITS: Final = 58  # of a set of words; above them is how many they are
WORDS: Final = (1 << WORD_BITS) - 1


@cfunc
def observe_query(now: Now, query: Content, nodes: Table) -> bool:
    """Record a query. Return whether the node is asked (almost) the same again in the same context and has answered it
    before. `nodes` are the run's."""
    node: NodeState = now.node
    value: u32 = tag32(hash64(query.norm) ^ now.topic)
    asked: u64 = hash64(query.sim) ^ mixed(now.topic) if query.sim else 0
    same: bool = node.query.count > 0
    same = same and (node.query.value == value or _is_near(node.query_simhash, asked, now.topic, query.size))
    if not same:
        node.query.begin(value, 1, now.index, now.index)
        node.query_simhash, node.has_answered = asked, False
        return False
    node.query.count += 1
    if _has_new_result(now) or max(now.novelty.last_progress, _others_found(nodes, node)) > node.query.stamp:
        node.query.stamp, node.has_answered = now.index, False  # another context, in which nothing is answered yet
    return bool(node.has_answered)


@cfunc
def _is_near(before: u64, asked: u64, topic: u32, size: int) -> bool:
    """Whether two queries about the same topic are alike: short ones have the same words but for one that only one of
    them has, long ones have a SimHash that hardly differs."""
    fewer: u64
    more: u64
    if not before or not asked:
        return False
    if size >= SHORT:
        return distance(before, asked) <= NEAR
    fewer = min(before ^ mixed(topic), asked ^ mixed(topic))
    more = max(before ^ mixed(topic), asked ^ mixed(topic))
    if fewer >> WORD_BITS < WORDS_MIN or (more >> WORD_BITS) - (fewer >> WORD_BITS) != 1:
        return False
    return distance(fewer & WORDS, more & WORDS) <= NEAR


@cfunc
def _has_new_result(now: Now) -> bool:
    """Whether this turn brings something that is new to the run and more than words."""
    turn: Turn = now.turn
    if now.novelty.last_discovery != now.index:
        return False
    return bool(turn.calls or turn.docs or turn.structured or turn.artifact)


@cfunc
def _others_found(nodes: Table, node: NodeState) -> i32:
    """Return the last turn in which another node found or left something new."""
    last: i32 = -1
    other: NodeState
    for other in nodes.rows:
        if other.key != node.key:
            last = max(last, other.last_call_news)
            if other.artifact.count:
                last = max(last, other.artifact.first)
    return last


@cfunc
def has_answer(turn: Turn) -> bool:
    """Return whether a turn carries an answer: a text, a structured output, a page or the result of a call. What comes
    with errors is none."""
    call: Call
    if turn.errors is not None and turn.errors.count:
        return False
    if turn.output is not None or turn.structured is not None or turn.docs is not None or turn.artifact is not None:
        return True
    for call in turn.calls:
        if call.outcome == ANSWERED:
            return True
    return False
