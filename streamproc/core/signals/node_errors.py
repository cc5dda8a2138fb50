"""Errors that a node reports: the same ones, turn after turn.

Memory: one streak a node. Retryable errors are ignored: they say nothing about the work. Under rules by which *every
error* counts, as in a repair loop, a second streak counts attempts that failed alike, however they were reported.
Read by ERROR001; CLAIM001 reads whether the last report had any.

Attempts that fail alike count for the run as well, whichever node reports them: each attempt may be a node of its own.
"""

from __future__ import annotations

import re
from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Row, Table, ccall, cclass, cfunc, final, hash64, i32, tag32, u32
from streamproc.core.signals.nodes import NodeState
from streamproc.model.wire import ANSWERED, Call, Errors, Turn

_NUMBER: Final = re.compile(r"[\W_]*\d+")
_ATTEMPT: Final = re.compile(r"(?i)attempt|try|retr|repair|fix|round|iter|pass|run")
RECOVERED: Final = -2  # stamp of the failure of a node that has had a turn without one since
NO_ERRORS: Final = 0  # value of the streak of a node that reported an empty list last
SIGNATURE_MESSAGES: Final = 3  # messages that the signature of errors is made of


@final
@cclass
class Attempt(Row):
    """The failure that the last attempts of a run ended in, whichever node reported them. Key: a tag of the failure."""

    count: u32  # attempts in a row
    tool: u32  # tag of the tool whose call failed; 0: the failure was reported
    first: i32  # turn of the first one
    last: i32  # turn of the last one


@ccall
def failure_of(now: Now, errors: Errors, of_task: bool) -> u32:
    """Return a tag of what errors say. If they are attempts (`of_task`), it is another one for each task; else it tells
    apart how many there are of more than the signature has, as linters and compilers report them."""
    failure: u32 = tag32(hash64(errors.norm))
    if of_task:
        return failure ^ now.task
    return failure ^ tag32(hash64(errors.count)) if errors.count > SIGNATURE_MESSAGES else failure


@cfunc
def observe_errors(now: Now, errors: Errors, failure: u32) -> bool:
    """Record reported errors, and return whether there are any. An empty list ends the streak, and begins one of its
    own (`NO_ERRORS`), which shows that the work of the node has succeeded."""
    node: NodeState = now.node
    if errors.retryable:
        if node.errors.value == NO_ERRORS:
            node.errors.clear()
        return False
    if errors.count == 0:
        node.errors.begin(NO_ERRORS, 1, now.index, now.index)
        return False
    since: i32 = max(now.novelty.last_progress, node.last_call_news)
    node.errors.extend(failure, now.index, now.index, since)
    if node.errors.first == now.index:
        now.novelty.last_result = now.index
        if now.novelty.remember(failure ^ node.key << 2):
            now.novelty.note_news(now.index)
    return True


def reported_none_last(nodes: Table) -> bool:
    """Return whether the last report of errors, of any node, was an empty list."""
    last: NodeState | None = None
    node: NodeState
    for node in nodes.rows:
        if node.errors.count and (last is None or node.errors.stamp > last.errors.stamp):
            last = node
    return last is not None and last.errors.value == NO_ERRORS


@cfunc
def observe_attempt(now: Now, attempts: Table, nodes: Table, previous: str) -> bool:
    """Record the outcome of a turn as an attempt, and return whether it failed. `attempts` has that of the run, `nodes`
    those of its nodes, `previous` is the node of the turn before.

    The same failure of the same task counts again whatever the node did in between, unless a measured value has
    improved. A request does not tell attempts apart: a repair asks with another prompt each time. A failed call is the
    same attempt if its tool has not succeeded since, or if its arguments are the same. A success ends the streak, also
    as an empty list of errors. A retryable error right after the same one is a retry, not an attempt, unless the turn
    brings an artifact: no other turn has come in between, so nothing was repaired. If other nodes had failed beside
    this one, the attempt counts once the last of them has failed again, and all as before: one may be repaired.
    """
    turn: Turn = now.turn
    node: NodeState = now.node
    errors: Errors | None = turn.errors or turn.call_errors
    called: bool
    same: bool
    value: u32
    retried: bool
    waits: bool
    beside: NodeState | None
    tool: u32 = 0
    made: u32 = 0
    if errors is None or errors.count == 0:
        if turn.errors is not None:
            if node.attempts.count:
                _end_others(now, attempts, nodes)
            node.attempts.clear()
            attempts.clear()
        elif len(attempts) and turn.calls:
            _end_attempt_by_success(now, attempts)
        if turn.errors is None and node.attempts.count and node.attempted:
            _end_by_success(now)
        if node.attempts.count and node.attempts.stamp != RECOVERED and node.attempts.stamp < now.index - 1:
            _end_others(now, attempts, nodes)
        return False
    called = turn.errors is None and len(turn.calls) > 0
    if called:
        tool, made = now.names.tag(errors.error_class), tag32(hash64(turn.calls[0].key))
    value = failure_of(now, errors, True)
    retried = errors.retryable and turn.artifact is None
    same = node.attempts.count > 0 and node.attempts.value == value
    beside = _failed_beside(now, nodes) if same else None
    waits = beside is not None and beside.attempts.stamp < now.index - 1  # a turn came in between: perhaps a repair
    waits = waits or (same and _is_interrupted(now, attempts, nodes))
    _count_attempt(now, attempts, value, tool, retried or not (same or _tries_again(now.turn, previous)), waits)
    same = same and now.novelty.last_progress <= node.attempts.first and not _fails_anew_beside(now, nodes)
    if same and node.attempted and called and node.attempted_tool != tool and node.attempted_call != made:
        same = False  # two failures of calls are the same attempt only if the tool or the call is
    if not same:
        node.attempts.begin(value, 1, now.index, now.index)
    else:
        if not waits and (not retried or node.attempts.stamp < now.index - 1):
            node.attempts.count += 1
        node.attempts.stamp = now.index
    node.attempted, node.attempted_tool, node.attempted_call = called, tool, made
    return True


@cfunc
def _end_others(now: Now, attempts: Table, nodes: Table) -> None:
    """Forget what the nodes right before and after it failed with: it had failed beside them, and does not any more, so
    the failures of the attempt are others than before. Its own count goes on: what it said may be no success."""
    own: NodeState = now.node
    at: i32 = own.attempts.stamp
    node: NodeState | None = _failed_beside(now, nodes)
    last: Attempt
    while node is not None:
        node.attempts.clear()
        node = _failed_beside(now, nodes)
    if len(attempts):
        last = attempts.rows[0]
        if last.key != own.attempts.value and -1 <= last.last - at <= 1:
            attempts.clear()
    own.attempts.stamp = RECOVERED


@cfunc
def _failed_beside(now: Now, nodes: Table) -> NodeState | None:
    """Return a node that failed otherwise right before or after this one did, and has had no turn since; None if there
    is none."""
    own: NodeState = now.node
    at: i32 = own.attempts.stamp
    node: NodeState
    for node in nodes.rows:
        if node.attempts.count and node.attempts.value != own.attempts.value and -1 <= node.attempts.stamp - at <= 1:
            return node
    return None


@cfunc
def _fails_anew_beside(now: Now, nodes: Table) -> bool:
    """Return whether another node has failed right before this one as it had not failed before: together, their errors
    are others than in the attempt before. A call that failed while a node repairs does not count if this one reports
    how the attempt has ended."""
    own: NodeState = now.node
    node: NodeState
    if own.attempts.stamp >= now.index - 2:  # they failed beside each other before
        return False
    for node in nodes.rows:
        if node.attempted and not own.attempted:
            continue
        if node.key != own.key and node.attempts.count == 1 and node.attempts.first == now.index - 1:
            return True
    return False


@cfunc
def _is_interrupted(now: Now, attempts: Table, nodes: Table) -> bool:
    """Return whether another node has failed otherwise since the only failure of this one, in an attempt of its own,
    and has not recovered: then this failure is no repeat of the attempt before."""
    own: NodeState = now.node
    node: NodeState
    last: Attempt
    if not len(attempts) or (own.attempts.stamp != own.attempts.first and own.attempts.stamp != RECOVERED):
        return False
    last = attempts.rows[0]
    if own.attempts.count > 1 or last.first <= own.attempts.first + 1 or last.last >= now.index - 1:
        return False
    for node in nodes.rows:
        if node.attempts.count and node.attempts.value == last.key and node.attempts.value != own.attempts.value:
            return node.attempts.stamp == last.last
    return False


@cfunc
def _count_attempt(now: Now, attempts: Table, failure: u32, tool: u32, beside: bool, waits: bool) -> None:
    """Count an attempt of the run that failed. Another failure, or a measured value that has improved, starts again.
    One `beside` the last is none if it follows at once: a retry, or another node that fails alike. One that `waits` for
    the outcome of other nodes is none yet."""
    last: Attempt | None = attempts.find(failure)
    if last is None or last.tool != tool or now.novelty.last_progress > last.first:
        attempts.clear()
        last = attempts.add(failure)
        last.first, last.tool = now.index, tool
    elif waits or (beside and last.last == now.index - 1):
        last.last = now.index
        return
    last.count += 1
    last.last = now.index


@cfunc
def _tries_again(turn: Turn, previous: str) -> bool:
    """Return whether the node of this turn makes the attempt of the node before it again: it is the same, or they have
    one name of attempts but for numbers, such as `attempt-1` and `attempt-2`. `step-1` and `step-2` are two steps."""
    if turn.node == previous:
        return True
    return unnumbered(turn.node) == unnumbered(previous) and _ATTEMPT.search(turn.node) is not None


@ccall
def unnumbered(name: str) -> str:
    """Return the name of a node without its numbers: those that try again share it."""
    return _NUMBER.sub("", name)


@cfunc
def _end_attempt_by_success(now: Now, attempts: Table) -> None:
    """Forget the last failure of the run if it was that of a tool which succeeds now."""
    last: Attempt = attempts.rows[0]
    call: Call
    for call in now.turn.calls:
        if call.outcome == ANSWERED and now.names.tag(call.name) == last.tool:
            attempts.clear()
            return


@cfunc
def _end_by_success(now: Now) -> None:
    """Forget the call that failed if it succeeds, and its tool if another call of it does."""
    call: Call
    node: NodeState = now.node
    for call in now.turn.calls:
        if call.outcome != ANSWERED:
            continue
        if tag32(hash64(call.key)) == node.attempted_call:
            node.attempts.clear()
            node.attempted = False
            return
        if now.names.tag(call.name) == node.attempted_tool:
            node.attempted_tool = 0
