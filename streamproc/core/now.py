"""The turn that the signals see: when it came, whose it is, and what is new in it so far."""

from __future__ import annotations

from collections.abc import Callable

from streamproc.core.marks import Marks
from streamproc.core.names import Names
from streamproc.core.records import cclass, i32, i64, u32
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.novelty import Novelty
from streamproc.core.signals.periods import Streams
from streamproc.model.wire import Turn


@cclass
class Now:
    """What a signal may know besides its own record. Signals change only what is new (`novelty`, `streams`) and the
    counts `call_turns` and `evicted`."""

    at_ms: i64  # log time
    last_event_ms: i64  # log time of the event before this one; 0: there was none
    started_ms: i64  # log time at which the run began
    spent_usd_micro: i64  # cost of the run so far, this turn included
    index: i32  # of the turn, from 0
    halt_seen: i32  # last turn in which a loop that is halted was seen; -1: never
    call_turns: u32  # turns with calls of the caller so far
    evicted: u32  # entries that this event drops from full collections
    node_tag: u32
    found: i32  # last turn before this one in which something new was found, but for the words of the turn's own node
    news: i32  # ... or something was polled
    known: u32  # what known answers the calls of this turn gave, as bits of `signals.calls`; 0: none, or also new ones
    caller: u32  # tag of the node, and of its agent if it names another one
    topic: u32  # what the turn is about: its task, its request, its agent if the node has several; 0: none
    task: u32  # tag of the task that the turn is an attempt at; 0: none. Only if every error counts
    marks: Marks  # of the policy in force
    names: Names  # tags of names
    tag: Callable[[str], int]  # returns the tag of a name
    turn: Turn
    node: NodeState  # memory of the turn's node
    novelty: Novelty  # of the cycle that the turn is in, or of the run
    streams: Streams  # the streams that repeat
