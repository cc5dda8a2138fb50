"""Statements: texts, structured outputs, artifacts and pages of nodes, as news or as repeats.

A text between two calls of one node is *narration*: neither news nor a step. Only when another node takes the next turn
is it known to be a message; until then it is pending (`RunState.pending_text`, one a run).
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import TAG, RunState
from streamproc.core.signals.novelty import note_news, note_words, remember_tag
from streamproc.core.signals.periods import STATEMENTS, STEPS, Period, push
from streamproc.model.wire import Turn

# Nodes for which users' messages are published as turns: their words are news for every gate but `none`.
USER_NODES: Final = frozenset({"user", "User", "human", "Human", "customer", "Customer"})


def observe_statement(run: RunState, node_tag: int, turn: Turn, topic: int, index: int) -> tuple[Period, ...]:
    """Record the statement of a turn, and return the periods it extends. Texts beside calls are narration: skipped."""
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
    return _record(run, tag, index, step=not turn.calls, words=turn.query is None and turn.node not in USER_NODES)


def settle_pending(run: RunState, node_tag: int) -> tuple[Period, ...]:
    """Decide on the pending text: a message if another node takes this turn, narration if its own node does."""
    waiting_node, tag, index = run.pending_text
    run.pending_text = []
    if waiting_node == node_tag:
        return ()
    return _record(run, tag, index, step=True, words=True)


def _record(run: RunState, tag: int, index: int, *, step: bool, words: bool) -> tuple[Period, ...]:
    """Record a statement as news or repeat, and add it to the streams. Return the periods that it extends.

    The answer to a query and what a person says are results, all other statements are `words`.
    """
    if remember_tag(run, tag):
        if words:
            note_words(run, index, (STEPS, STATEMENTS))
        else:
            note_news(run, index, (STEPS, STATEMENTS))
    tag &= TAG & ~1
    found = []
    if step and (period := push(run, STEPS, tag, index)):
        found.append(period)
    if period := push(run, STATEMENTS, tag, index):
        found.append(period)
    return tuple(found)
