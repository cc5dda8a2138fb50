"""Errors that a node reports: the same ones, turn after turn.

Memory: one streak a node. Retryable errors are ignored: they say nothing about the work. Under rules by which *every
error* counts, as in a repair loop, a second streak counts attempts that failed alike, however they were reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamproc.core.run_state import TAG, NodeState, RunState, Streak
from streamproc.core.signals.streaks import extend
from streamproc.model.wire import ANSWERED, Errors, Turn

ATTEMPT_BYTES: Final = 32  # of an encoded state


def observe_errors(node: NodeState, errors: Errors, index: int, since: int) -> bool:
    """Record reported errors, and return whether there are any. An empty list ends the streak."""
    if errors.retryable:
        return False
    if errors.count == 0:
        node.errors = None
        return False
    node.errors = extend(node.errors, errors.norm & TAG, index, index, since)
    return True


def observe_attempt(run: RunState, node: NodeState, turn: Turn, index: int, names: Mapping[str, int]) -> bool:
    """Record the outcome of a turn as an attempt, and return whether it failed.

    The same failure counts again whatever the node did in between, unless a measured value has improved. A failed call
    is the same attempt if its tool has not succeeded since, or if its arguments are the same. A success ends the
    streak, also as an empty list of errors. A retryable error right after the same one is a retry, not an attempt: no
    other turn has come in between, so nothing was repaired.
    """
    errors = turn.errors or turn.call_errors
    if errors is None or errors.count == 0:
        if turn.errors is not None:
            node.attempts = None
        elif node.attempts is not None and node.attempted:
            _end_by_success(node, turn, names)
        return False
    made = [names[errors.error_class], turn.calls[0].key & TAG] if turn.errors is None and turn.calls else []
    before, value = node.attempts, errors.norm & TAG
    run.size_left -= ATTEMPT_BYTES
    same = before is not None and before.value == value and run.last_progress <= before.first
    if before is None or not same or not _is_again(node.attempted, made):
        node.attempts = Streak(value, 1, index, index)
    else:
        if not errors.retryable or before.stamp < index - 1:
            before.count += 1
        before.stamp = index
    node.attempted = made
    return True


def _is_again(before: list[int], made: list[int]) -> bool:
    """Return whether two failures can be the same attempt: of one tool, of one call, or one of them not of a call."""
    return not before or not made or before[0] == made[0] or before[1] == made[1]


def _end_by_success(node: NodeState, turn: Turn, names: Mapping[str, int]) -> None:
    """Forget the call that failed if it succeeds, and its tool if another call of it does."""
    for call in turn.calls:
        if call.outcome == ANSWERED and call.key & TAG == node.attempted[1]:
            node.attempts, node.attempted = None, []
            return
        if call.outcome == ANSWERED and names[call.name] == node.attempted[0]:
            node.attempted[0] = 0
