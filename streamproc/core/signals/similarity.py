"""Similarity: long texts and answers that are almost the same, by SimHash."""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import HASH, NodeState, RunState
from streamproc.core.signals.novelty import MIX
from streamproc.model.wire import ANSWERED, Content, Turn

SIMS_MAX: Final = 6  # long texts that a new one is compared with
NEAR: Final = 3  # bits of 64 in which alike texts may differ
CLOSE: Final = 4  # turns from one answer of a tool to the next that is almost the same
# Of a node that talks to itself, in bits that may differ: other words in two places of one page or more, of a
# paragraph, of a sentence. Texts about other numbers or names are never alike.
NEAR_LONG: Final = 8
LONG: Final = 600  # characters
NEAR_PARAGRAPH: Final = 10
NEAR_SHORT: Final = 12  # other sentences differ in 16 and more
SHORT: Final = 200  # characters
SIM_BYTES: Final = 15


def observe_near(run: RunState, turn: Turn, index: int) -> int:
    """Whether a long new text is almost one of the last: the turn of that one, or -1.

    Of what calls answer, only those that follow each other closely: a second look at a changed file is honest, and so
    is the same call whose answer has moved on.
    """
    if turn.output is not None and turn.output.sim and turn.output.size >= SHORT:
        return _near_one(run, turn.output.sim, index, 0)
    if run.moved != index:
        for call in turn.calls:
            if call.sim and call.outcome == ANSWERED:
                return _near_one(run, call.sim, index, index - CLOSE)
    return -1


def _near_one(run: RunState, sim: int, index: int, since: int) -> int:
    found = -1
    for known, turn in run.sims:
        if (known ^ sim).bit_count() <= NEAR and turn >= since:
            found = turn
    run.sims.append([sim & HASH, index])
    if len(run.sims) > SIMS_MAX:
        del run.sims[0]
    else:
        run.room -= SIM_BYTES
    return found


def says_alike(node: NodeState, text: Content) -> bool:
    """Whether a node says almost what it said last, about the same: other words for it are no finding."""
    before, sim = node.said, _sim(text)
    node.said = sim
    return before != 0 != sim and (before ^ sim).bit_count() <= _near(text)


def _sim(text: Content) -> int:
    """A SimHash that is far from those of texts about something else, however few words differ."""
    return (text.sim ^ text.about * MIX) & HASH if text.sim else 0


def _near(text: Content) -> int:
    """In how many bits texts of this size may differ and still be alike."""
    return NEAR_SHORT if text.size < SHORT else NEAR_LONG if text.size >= LONG else NEAR_PARAGRAPH
