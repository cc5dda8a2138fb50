"""Similarity: long texts that are almost the same, by SimHash (64 bits; similar texts differ in few).

Memory: the SimHashes of the last `SIMS_MAX` long texts of the run, and of each node's last text.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import HASH, NodeState, RunState
from streamproc.core.signals.novelty import MIX
from streamproc.model.wire import Content, Turn

SIMS_MAX: Final = 6  # long texts that a new one is compared with; each costs one comparison a turn
NEAR: Final = 3  # bits of 64 in which long texts may differ and count as almost the same
# Bits in which consecutive texts of one node may differ: about two changed words in a page, a paragraph, a sentence.
# Texts about other numbers or names are never similar (`topic_simhash`).
NEAR_LONG: Final = 8
LONG: Final = 600  # characters
NEAR_PARAGRAPH: Final = 10
NEAR_SHORT: Final = 12  # different sentences differ in 16 bits or more
SHORT: Final = 200  # characters
SIM_BYTES: Final = 15  # of an encoded state


def observe_near(run: RunState, turn: Turn, index: int) -> int:
    """Return the turn of a recent long text that is almost equal to this turn's, or -1.

    Answers of calls are not compared. Those of different calls are alike if their subjects are (the next page, another
    file), and an answer of the same call that is only almost the same shows that something has changed.
    """
    if turn.output is None or not turn.output.sim or turn.output.size < SHORT:
        return -1
    sim, found = turn.output.sim, -1
    for known, at in run.recent_simhashes:
        if (known ^ sim).bit_count() <= NEAR:
            found = at
    run.recent_simhashes.append([sim & HASH, index])
    if len(run.recent_simhashes) > SIMS_MAX:
        del run.recent_simhashes[0]
    else:
        run.size_left -= SIM_BYTES
    return found


def says_alike(node: NodeState, text: Content) -> bool:
    """Record a text of a node, and return whether it is almost the node's last text, about the same topic."""
    before, sim = node.text_simhash, topic_simhash(text)
    node.text_simhash = sim
    return before != 0 != sim and (before ^ sim).bit_count() <= near_bits(text)


def topic_simhash(text: Content) -> int:
    """Return a SimHash that differs in many bits from those of texts about other numbers or names."""
    return (text.sim ^ text.about * MIX) & HASH if text.sim else 0


def near_bits(text: Content) -> int:
    """Return in how many bits texts of this size may differ and still count as similar."""
    return NEAR_SHORT if text.size < SHORT else NEAR_LONG if text.size >= LONG else NEAR_PARAGRAPH
