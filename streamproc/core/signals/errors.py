"""Errors that a node reports: the same one, turn after turn."""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState
from streamproc.core.signals.streaks import extend
from streamproc.model.wire import Errors


def observe_errors(node: NodeState, errors: Errors, index: int, since: int) -> bool:
    """Take in what failed. An empty list says that nothing did, and ends the streak; True where there is one."""
    if errors.retryable:
        return False
    if errors.count == 0:
        node.errors = None
        return False
    node.errors = extend(node.errors, errors.norm & TAG, index, index, since)
    return True
