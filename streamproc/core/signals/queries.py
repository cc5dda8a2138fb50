"""Queries: the same or almost the same question to a node that has answered before.

Memory: one streak and one SimHash a node.
"""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState, Streak
from streamproc.core.signals.similarity import NEAR, topic_simhash
from streamproc.model.wire import Content


def observe_query(node: NodeState, query: Content, index: int) -> Streak | None:
    """Record a query. Return its streak if the node has answered before and is asked (almost) the same again."""
    value = query.norm & TAG
    streak, sim = node.query, node.query_simhash
    asked = topic_simhash(query)
    same = streak is not None and (streak.value == value or (sim and asked and (sim ^ asked).bit_count() <= NEAR))
    node.query_simhash = asked
    if streak is None or not same:
        node.query = Streak(value, 1, index)
        return None
    streak.count += 1
    return streak if node.has_answered else None
