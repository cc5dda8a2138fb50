"""Queries: the same or almost the same question to a node that has answered before."""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState, Streak
from streamproc.core.signals.similarity import NEAR, _sim
from streamproc.model.wire import Content


def observe_query(node: NodeState, query: Content, index: int) -> Streak | None:
    """The same or almost the same query to a node that has answered before; None where there is nothing to look at."""
    value = query.norm & TAG
    streak, sim = node.query, node.query_sim
    asked = _sim(query)
    same = streak is not None and (streak.value == value or (sim and asked and (sim ^ asked).bit_count() <= NEAR))
    node.query_sim = asked
    if streak is None or not same:
        node.query = Streak(value, 1, index)
        return None
    streak.count += 1
    return streak if node.answered else None
