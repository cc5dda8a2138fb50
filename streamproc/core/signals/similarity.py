"""Similarity: long texts that are almost the same, by SimHash (64 bits; similar texts differ in few).

Memory: the SimHashes of the last `SIMS_MAX` long texts of the run, and of each node's last text. Read by LOOP006.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Record, Values, cclass, cfunc, distance, final, hash64, i32, i64, mixed, u32, u64
from streamproc.core.signals.nodes import NodeState
from streamproc.model.wire import Content

SIMS_MAX: Final = 6  # long texts that a new one is compared with; each costs one comparison a turn
NEAR: Final = 3  # bits of 64 in which long texts may differ and count as almost the same
# Bits in which consecutive texts of one node may differ: about two changed words in a page, a paragraph, a sentence.
# Texts about other numbers or names are never similar (`topic_simhash`).
NEAR_LONG: Final = 8
LONG: Final = 600  # characters
NEAR_PARAGRAPH: Final = 10
NEAR_SHORT: Final = 12  # different sentences differ in 16 bits or more
SHORT: Final = 200  # characters


@final
@cclass
class LongTexts(Record):
    """The last long texts of a run."""

    sims: Values  # SimHashes
    turns: Values  # and the turns of each

    def __init__(self) -> None:
        self.sims, self.turns = Values(SIMS_MAX), Values(SIMS_MAX)
        super().__init__(self.sims, self.turns)

    @cfunc
    def observe(self, now: Now) -> tuple[int, ...]:
        """Return the turns of recent long texts that are almost equal to this turn's, or to one that is.

        Answers of calls are not compared. Those of different calls are alike if their subjects are (the next page,
        another file), and an answer of the same call that is only almost the same shows that something has changed.
        """
        output: Content | None = now.turn.output
        sim: u64
        place: u32
        found: tuple[int, ...] = ()
        if output is None or not output.sim or output.size < SHORT:
            return found
        sim = hash64(output.sim)
        for place in range(self.sims.size):
            if distance(self.sims.at(place), sim) <= NEAR:
                found = self._alike(sim)
                break
        self.sims.push(sim)
        self.turns.push(now.index)
        return found

    @cfunc
    def _alike(self, sim: u64) -> tuple[int, ...]:
        """Return the turns of the texts that are near this one, or near one that is."""
        sims: list[u64] = [sim]
        near: u64
        place: u32
        turns: set[int] = set()
        for near in sims:  # which grows
            for place in range(self.sims.size):
                if self.turns.at(place) not in turns and distance(self.sims.at(place), near) <= NEAR:
                    turns.add(int(self.turns.at(place)))
                    sims.append(self.sims.at(place))
        return tuple(sorted(turns))


@cfunc
def says_alike(node: NodeState, text: Content) -> bool:
    """Record a text of a node, and return whether it is almost the node's last text, about the same topic."""
    before: u64 = node.text_simhash
    sim: u64 = topic_simhash(text)
    node.text_simhash = sim
    return before != 0 and sim != 0 and distance(before, sim) <= near_bits(text)


@cfunc
def topic_simhash(text: Content) -> u64:
    """Return a SimHash that differs in many bits from those of texts about other numbers or names."""
    return hash64(text.sim) ^ mixed(hash64(text.about)) if text.sim else 0


@cfunc
def near_bits(text: Content) -> i32:
    """Return in how many bits texts of this size may differ and still count as similar."""
    size: i64 = text.size
    return NEAR_SHORT if size < SHORT else NEAR_LONG if size >= LONG else NEAR_PARAGRAPH
