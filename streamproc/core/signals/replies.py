"""Replies: what a node says to the messages of people, when it says the same to one after another.

Messages are `user.message` events and the texts of a person's node. An event carries no text, so each counts as another
message; the same text again does not. A message that another node has answered in other words is no evidence against
one that repeats itself, such as a greeting. Memory: for each node its last reply, for the run the number of messages.
Read by LOOP011.
"""

from __future__ import annotations

from streamproc.core.now import Now
from streamproc.core.records import Record, Table, ccall, cclass, cfunc, final, hash64, i32, tag32, u32, u64
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.streaks import Streak
from streamproc.model.wire import Content


@final
@cclass
class Messages(Record):
    """The messages of people, and which nodes have answered them."""

    count: u32  # messages so far; those with the same text in a row are one
    text: u32  # tag of the last text; 0: not known
    answered: u32  # number of the last message that a node answered in other words than before
    by: u32  # tag of that node
    worked: i32  # last turn with a result; -1: none since the first message

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.worked = -1

    @ccall
    def note(self, text: u64 = 0) -> None:
        """Record a message of a person with the hash of its text; 0: not known."""
        tag: u32 = tag32(text)
        if not self.count or not tag or tag != self.text:
            self.count += 1
            self.text = tag

    @cfunc
    def observe(self, now: Now, text: Content, nodes: Table) -> bool:
        """Record a text of a node about a topic, and return whether the node answers another message with its last
        text, with no call, result or other answer in between."""
        streak: Streak = now.node.reply
        value: u32 = tag32(hash64(text.norm) ^ now.topic)
        heard: i32 = self.count
        worked: i32
        answered: bool
        known: NodeState
        if not streak.count or streak.value != value:
            streak.begin(value, 1, now.index, heard)
            self.answered, self.by = heard, now.node_tag
            return False
        if streak.stamp == heard:
            return False  # repeated without a message in between: `NodeState.output` counts that
        worked = self.worked
        for known in nodes.rows:
            worked = max(worked, known.last_call)
        answered = self.by != now.node_tag and self.answered >= streak.stamp
        if answered or worked > streak.first:
            streak.count, streak.first = 0, now.index
        streak.count += 1
        streak.stamp = heard
        return streak.count > 1
