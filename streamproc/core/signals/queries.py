"""Queries: the same or almost the same question to a node that has answered it before.

Memory: one streak and one SimHash a node, and whether it has answered the last query.
"""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState, Streak
from streamproc.core.signals.similarity import NEAR, topic_simhash
from streamproc.model.wire import ANSWERED, Content, Turn


def observe_query(node: NodeState, query: Content, index: int) -> Streak | None:
    """Record a query. Return its streak if the node is asked (almost) the same again and has answered it before."""
    value = query.norm & TAG
    streak, sim = node.query, node.query_simhash
    asked = topic_simhash(query)
    same = streak is not None and (streak.value == value or (sim and asked and (sim ^ asked).bit_count() <= NEAR))
    node.query_simhash = asked
    if streak is None or not same:
        node.query = Streak(value, 1, index)
        node.has_answered = False
        return None
    streak.count += 1
    return streak if node.has_answered else None


def has_answer(turn: Turn) -> bool:
    """Return whether a turn carries an answer: a text, a structured output, a page or the result of a call. What comes
    with errors is none."""
    if turn.errors is not None and turn.errors.count:
        return False
    if turn.output is not None or turn.structured is not None or turn.docs is not None:
        return True
    return any(call.outcome == ANSWERED for call in turn.calls)
