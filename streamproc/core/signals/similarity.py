"""Similarity: long texts and answers that are almost the same, by SimHash (64 bits; similar texts differ in few).

Memory: the SimHashes of the last `SIMS_MAX` long texts of the run, and of each node's last text.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import HASH, NodeState, RunState
from streamproc.core.signals.novelty import MIX
from streamproc.model.wire import ANSWERED, Content, Turn

SIMS_MAX: Final = 6  # long texts that a new one is compared with; each costs one comparison a turn
NEAR: Final = 3  # bits of 64 in which long texts may differ and count as almost the same
CLOSE: Final = 4  # turns within which an almost equal answer of a tool counts
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

    Answers of calls count only if they follow each other closely and no call changed its answer: looking again at a
    file that was edited is legitimate work.
    """
    if turn.output is not None and turn.output.sim and turn.output.size >= SHORT:
        return _near_one(run, turn.output.sim, index, 0)
    if run.last_answer_change != index:
        for call in turn.calls:
            if call.sim and call.outcome == ANSWERED:
                return _near_one(run, call.sim, index, index - CLOSE)
    return -1


def _near_one(run: RunState, sim: int, index: int, since: int) -> int:
    found = -1
    for known, turn in run.recent_simhashes:
        if (known ^ sim).bit_count() <= NEAR and turn >= since:
            found = turn
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
