"""What each node says in its own turns, whatever words other nodes say in between: the same again, or the same few in
turn. Counted here if the policy's `Gate` of LOOP001 or LOOP002 is not `any`.

Others who ask a node for the same may word it differently each time, so their words say nothing about its progress. The
text beside a node's calls counts, too: a turn may be a whole session, and its text the final message.

Memory: the two streaks of a node, and a hash window a node.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import TAG, NodeState, RunState, Said
from streamproc.core.signals.novelty import Gate, last_end
from streamproc.core.signals.periods import Period, own_stream, push
from streamproc.core.signals.streaks import said_again
from streamproc.model.wire import Turn

OWN_TIMES: Final = 3  # of the same between others' words; fewer are not even worth a warning


def count_own(run: RunState, node: NodeState, turn: Turn, topic: int, gate: Gate, index: int) -> list[Said]:
    """Count the text and the structured output of a turn, and return those that are repeats."""
    since, found = last_end(run, gate), []
    if node.artifact is not None and node.artifact.first == index:
        since = index  # another artifact than before is progress, whatever is said about it
    if turn.output is not None:
        node.output = said_again(node.output, turn.output.norm ^ topic, index, since, since)
        found.append(node.output)
    if turn.structured is not None:
        node.structured = said_again(node.structured, turn.structured.norm ^ topic, index, since, since)
        found.append(node.structured)
    return [said for said in found if said.count > 1]


def own_period(run: RunState, node_tag: int, turn: Turn, topic: int, gate: Gate, index: int) -> Period | None:
    """Add what a turn says or leaves to the stream of its node, and return the period with which that repeats."""
    content = turn.output or turn.structured or turn.artifact or turn.docs
    if content is None:
        return None
    left = turn.artifact or turn.docs
    value = content.norm if left is None or left is content else content.norm ^ left.norm >> 3
    stream = own_stream(node_tag)
    window = run.hash_windows.get(stream)
    if window is not None and window.turns and last_end(run, gate) > window.turns[-1]:
        window.clear()
    return push(run, stream, (node_tag ^ value ^ topic) & TAG & ~1, index)
