"""Monologues: consecutive turns of one node that consist of almost the same text and nothing else.

Memory: the monologue in progress, one a run.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import HASH, TAG, Monologue, RunState
from streamproc.core.signals.novelty import MIX
from streamproc.core.signals.similarity import SHORT, near_bits, topic_simhash
from streamproc.model.wire import Content

GROWTH: Final = 40  # characters by which a text must grow to count as a draft in progress


def observe_monologue(run: RunState, node_tag: int, text: Content | None, topic: int, index: int) -> Monologue | None:
    """Record a text of a node about a topic; None, any other turn, ends the monologue. Return the monologue if the
    text continues it."""
    before = run.monologue
    if text is None:
        run.monologue = None
        return None
    value, sim, near = (text.norm ^ topic) & TAG, topic_simhash(text), near_bits(text)
    sim = (sim ^ topic * MIX) & HASH if sim else 0
    if before is not None and text.size > max(SHORT, before.size + GROWTH):
        near = -1  # a growing draft: not similar to anything
    alike = (
        before is not None
        and before.node == node_tag
        and (before.value == value or (before.sim and sim and (before.sim ^ sim).bit_count() <= near))
    )
    if before is None or not alike:
        run.monologue = Monologue(node_tag, value, sim, 1, index, text.size)
        return None
    before.count += 1
    before.loose = before.loose or (before.value != value and text.size < SHORT)
    before.grown = before.grown + text.size - before.size if before.grown >= 0 and before.size <= text.size else -1
    before.value, before.sim, before.size = value, sim, text.size
    return before
