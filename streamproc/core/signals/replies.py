"""Replies: what a node says to the messages of people, when it says the same to one after another.

Messages are `user.message` events and the texts of a person's node. An event carries no text, so each counts as another
message; the same text again does not. A message that another node has answered in other words is no evidence against
one that repeats itself, such as a greeting. Memory: for each node its last reply, for the run the number of messages.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import TAG, Messages, NodeState, RunState, Streak
from streamproc.model.wire import Content

MESSAGES_BYTES: Final = 30
REPLY_BYTES: Final = 25


def note_message(run: RunState, text: int = 0) -> None:
    """Record a message of a person with the hash of its text; 0: not known."""
    messages, tag = run.messages, text & TAG
    if messages is None:
        run.messages = Messages(1, tag)
        run.size_left -= MESSAGES_BYTES
    elif not tag or tag != messages.text:
        messages.count += 1
        messages.text = tag


def observe_reply(
    run: RunState, messages: Messages, tag: int, node: NodeState, text: Content, index: int
) -> Streak | None:
    """Record a text of a node, and return the streak if the node answers another message with its last text, with no
    call, result or other answer in between."""
    heard, value, streak = messages.count, text.norm & TAG, node.reply
    if streak is None or streak.value != value:
        if streak is None:
            run.size_left -= REPLY_BYTES
        node.reply = Streak(value, 1, index, heard)
        messages.answered, messages.by = heard, tag
        return None
    if streak.stamp == heard:
        return None  # repeated without a message in between: `NodeState.output` counts that
    worked = messages.worked
    for known in run.nodes.values():
        worked = max(worked, known.last_call)
    answered = messages.by != tag and messages.answered >= streak.stamp
    if answered or worked > streak.first:
        streak.count, streak.first = 0, index
    streak.count += 1
    streak.stamp = heard
    return streak if streak.count > 1 else None
