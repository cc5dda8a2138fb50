"""What each node says in its own turns, whatever words other nodes say in between: the same again, or the same few in
turn. Counted here if the policy's `Gate` of LOOP001 or LOOP002 is not `any`.

Others who ask a node for the same may word it differently each time, so their words say nothing about its progress. The
text beside a node's calls counts, too: a turn may be a whole session, and its text the final message.

Memory: the two streaks of a node, and a hash window a node.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Table, cfunc, hash64, i32, tag32, u64
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.handovers import is_author
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.novelty import Gate
from streamproc.core.signals.periods import HashWindow, own_stream
from streamproc.core.signals.streaks import Said
from streamproc.model.wire import Content, Turn

PHRASE_CHARS: Final = 120  # a longer text is work of its own
OWN_TIMES: Final = 3  # of the same between others' words; fewer are not even worth a warning


@cfunc
def count_own(now: Now, topic: u64, gate: Gate, nodes: Table, cycle: Cycle | None) -> tuple[Said, ...]:
    """Count the text and the structured output of a turn, and return those that are repeats. `nodes` are the run's,
    `cycle` is that of the turn's node."""
    node: NodeState = now.node
    output: Content | None = now.turn.output
    structured: Content | None = now.turn.structured
    since: i32 = now.novelty.last_end(gate)
    if node.artifact.count and node.artifact.first == now.index:
        since = now.index  # another artifact than before is progress, whatever is said about it
    beside: u64 = topic
    if structured is not None and not structured.size and output is not None:
        beside ^= hash64(output.norm) >> 2  # a bare status says no more than the text that it stands beside
    _interrupt_other_form(now.turn, node)
    repeated = _count(now, node.structured, structured, beside, _since(now, structured, since, nodes, cycle))
    topic ^= beside_of(structured)
    return _count(now, node.output, output, topic, _since(now, output, since, nodes, cycle)) + repeated


@cfunc
def _interrupt_other_form(turn: Turn, node: NodeState) -> None:
    """End the streak of the form that this turn does not have: what it has is another output in between."""
    structured: bool = turn.structured is not None and turn.structured.size > 0
    left: bool = turn.artifact is not None or turn.docs is not None
    if turn.output is None and (structured or left):
        node.output.interrupt()
    if turn.structured is None and (left or (turn.output is not None and not turn.calls)):
        node.structured.interrupt()


@cfunc
def beside_of(structured: Content | None) -> u64:
    """Return what tells equal texts apart: another structure beside them, unless it is a bare status."""
    return hash64(structured.norm) >> 6 if structured is not None and structured.size else 0


@cfunc
def _since(now: Now, said: Content | None, since: i32, nodes: Table, cycle: Cycle | None) -> i32:
    """Return the turn that restarts the count of a text or a verdict: of a short one, also the work of others, unless
    it is a coder or a writer that says it. Its own work would show."""
    if said is None or said.size > PHRASE_CHARS or is_author(now.turn.node):
        return since
    return max(since, others_work(nodes, now.node, cycle))


@cfunc
def others_work(nodes: Table, node: NodeState, cycle: Cycle | None) -> i32:
    """Return the last turn in which another node, of the same cycle if there is one, left another artifact than before:
    what a reviewer says about it in a few words may be the same each time."""
    last: i32 = -1
    other: NodeState
    for other in nodes.rows:
        if other.key != node.key and other.artifact.count and (cycle is None or cycle.inside(other.key)):
            last = max(last, other.artifact.first)
    return last


@cfunc
def _count(now: Now, said: Said, content: Content | None, topic: u64, since: i32) -> tuple[Said, ...]:
    if content is None:
        return ()
    said.extend(hash64(content.norm) ^ topic, now.index, since, since, -1)
    return (said,) if said.count > 1 else ()


@cfunc
def observe_own_period(now: Now, topic: u64, gate: Gate) -> None:
    """Add what a turn says or leaves to the stream of its node, and report the period with which that repeats."""
    turn: Turn = now.turn
    stated = turn.structured if turn.structured is not None and turn.structured.size else None
    # A page, an answer in a structure or a patch is the work; the text beside it sums it up in other words each time.
    content = turn.docs or stated or turn.artifact or turn.output or turn.structured
    left = turn.artifact or turn.docs
    value: u64
    stream: u64
    window: HashWindow | None
    if content is None:
        return
    value = hash64(content.norm)
    if left is not None and left is not content:
        value ^= hash64(left.norm) >> 3
    stream = own_stream(now.node_tag)
    window = now.streams.windows.find(stream)
    if window is not None and window.tags.size and now.novelty.last_end(gate) > window.tags.turn_ago(1):
        window.forget()
    now.streams.observe(stream, tag32(now.node_tag ^ value ^ topic) & ~1, now.index)
