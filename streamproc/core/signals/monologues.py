"""Monologues: turns of one node that consist of almost the same text."""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import HASH, TAG, Monologue, RunState
from streamproc.core.signals.novelty import MIX
from streamproc.core.signals.similarity import SHORT, _near, _sim
from streamproc.model.wire import Content

GROWTH: Final = 40  # characters more, of a text that says something in addition
MONOLOGUE_BYTES: Final = 45


def observe_monologue(run: RunState, node_tag: int, text: Content | None, topic: int, index: int) -> Monologue | None:
    """Count turns of one node that are nothing but (almost) the same text about a topic; any other turn (None) ends
    it."""
    before = run.monologue
    if text is None:
        run.monologue = None
        return None
    value, sim, near = (text.norm ^ topic) & TAG, _sim(text), _near(text)
    sim = (sim ^ topic * MIX) & HASH if sim else 0
    if before is not None and text.size > max(SHORT, before.size + GROWTH):
        near = -1  # a draft that grows
    alike = (
        before is not None
        and before.node == node_tag
        and (before.value == value or (before.sim and sim and (before.sim ^ sim).bit_count() <= near))
    )
    if before is None or not alike:
        run.monologue = Monologue(node_tag, value, sim, 1, index, text.size)
        run.room -= MONOLOGUE_BYTES if before is None else 0
        return None
    before.count += 1
    before.loose = before.loose or (before.value != value and text.size < SHORT)
    before.grown = before.grown + text.size - before.size if before.grown >= 0 and before.size <= text.size else -1
    before.value, before.sim, before.size = value, sim, text.size
    return before
