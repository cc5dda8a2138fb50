"""Statements: what nodes say, as news or repeats.

A text between two calls of one node is *narration*: neither news nor a step. It is only known to be a message, and not
narration, when another node takes the next turn; until then it is `pending`.
"""

from __future__ import annotations

from streamproc.core.run_state import TAG, RunState
from streamproc.core.signals.novelty import note_news, remember_tag
from streamproc.core.signals.periods import SAID, STEPS, Period, push
from streamproc.model.wire import Turn


def observe_said(run: RunState, node_tag: int, turn: Turn, topic: int, index: int) -> tuple[Period, ...]:
    """Take in what a turn said or left behind (not a text beside calls: that is narration)."""
    tag = node_tag
    if turn.output is not None and not turn.calls:
        tag ^= turn.output.norm ^ topic
    if turn.structured is not None:
        tag ^= turn.structured.norm >> 1 ^ topic
    if turn.docs is not None:
        tag ^= turn.docs.norm >> 2
    if turn.artifact is not None:
        tag ^= turn.artifact.norm >> 3
    if tag == node_tag:
        return ()
    return state_said(run, tag, index, step=not turn.calls)


def state_said(run: RunState, tag: int, index: int, *, step: bool) -> tuple[Period, ...]:
    """A statement by a node: news or a repeat, and an element of the streams of what was said."""
    if remember_tag(run, tag):
        note_news(run, index, (STEPS, SAID))
    tag &= TAG & ~1
    found = []
    if step and (period := push(run, STEPS, tag, index)):
        found.append(period)
    if period := push(run, SAID, tag, index):
        found.append(period)
    return tuple(found)


def settle_pending(run: RunState, node_tag: int) -> tuple[Period, ...]:
    """A text that another node answers was a message; one that its own node follows up was narration."""
    waiting_node, tag, index = run.pending
    run.pending = []
    if waiting_node == node_tag:
        return ()
    return state_said(run, tag, index, step=True)
