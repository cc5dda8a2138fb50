"""What each node says in its own turns, whatever words other nodes say in between: the same again, or the same few in
turn. Counted here if the policy's `Gate` of LOOP001 or LOOP002 is not `any`.

Others who ask a node for the same may word it differently each time, so their words say nothing about its progress. The
text beside a node's calls counts, too: a turn may be a whole session, and its text the final message.

Memory: the two streaks of a node, and a hash window a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.core.records import cfunc, hash64, i32, tag32, u32, u64
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.novelty import Gate, last_end
from streamproc.core.signals.periods import HashWindow, Period, own_stream, push
from streamproc.core.signals.streaks import STREAK_BYTES
from streamproc.model.wire import Turn

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState
    from streamproc.core.view import View

OWN_TIMES: Final = 3  # of the same between others' words; fewer are not even worth a warning


@cfunc
def count_own(view: View, topic: u64, gate: Gate) -> None:
    """Count the text and the structured output of a turn, and observe those that are repeats."""
    turn: Turn = view.turn
    node: NodeState = view.node
    index: i32 = view.index
    since: i32 = last_end(view.run, gate)
    if node.artifact.count and node.artifact.first == index:
        since = index  # another artifact than before is progress, whatever is said about it
    if turn.output is not None:
        if not node.output.count:
            view.run.size_left -= STREAK_BYTES
        node.output.extend(hash64(turn.output.norm) ^ topic, index, since, since, -1)
        if node.output.count > 1:
            view.add_repeated_text(node.output)
    if turn.structured is not None:
        if not node.structured.count:
            view.run.size_left -= STREAK_BYTES
        node.structured.extend(hash64(turn.structured.norm) ^ topic, index, since, since, -1)
        if node.structured.count > 1:
            view.add_repeated_text(node.structured)


@cfunc
def own_period(run: RunState, node_tag: u32, turn: Turn, topic: u64, gate: Gate, index: i32) -> Period | None:
    """Add what a turn says or leaves to the stream of its node, and return the period with which that repeats."""
    content = turn.output or turn.structured or turn.artifact or turn.docs
    left = turn.artifact or turn.docs
    value: u64
    stream: u64
    window: HashWindow | None
    if content is None:
        return None
    value = hash64(content.norm)
    if left is not None and left is not content:
        value ^= hash64(left.norm) >> 3
    stream = own_stream(node_tag)
    window = run.windows.find(stream)
    if window is not None and window.tags.size and last_end(run, gate) > window.tags.turn_ago(1):
        window.forget()
    return push(run, stream, tag32(node_tag ^ value ^ topic) & ~1, index)
