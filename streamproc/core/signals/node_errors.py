"""Errors that a node reports: the same ones, turn after turn.

Memory: one streak a node. Retryable errors are ignored: they say nothing about the work.
"""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState
from streamproc.core.signals.streaks import extend
from streamproc.model.wire import Errors


def observe_errors(node: NodeState, errors: Errors, index: int, since: int) -> bool:
    """Record reported errors, and return whether there are any. An empty list ends the streak."""
    if errors.retryable:
        return False
    if errors.count == 0:
        node.errors = None
        return False
    node.errors = extend(node.errors, errors.norm & TAG, index, index, since)
    return True
