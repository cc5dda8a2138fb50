"""Novelty: what a run has seen before, and when something new last happened.

*News* is a (call, answer) pair, statement, artifact or test result that this run has not had before. It ends what was
repeating, in every stream.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import SEEN_BYTES, SEEN_MAX, TAG, RunState
from streamproc.core.signals.periods import LEFT

MIX: Final = 0x9E3779B97F4A7C15  # odd, its bits spread: multiplying by it keeps sums of hashes apart


def remember_tag(run: RunState, tag: int) -> bool:
    """Remember a thing; True where it was new to this run."""
    seen = run.seen
    tag &= TAG
    if tag in seen:
        del seen[tag]  # to the young end: what keeps coming back is not forgotten
        seen[tag] = 0
        return False
    seen[tag] = 0
    if len(seen) > SEEN_MAX:
        del seen[next(iter(seen))]
    else:
        run.room -= SEEN_BYTES
    return True


def note_news(run: RunState, index: int, own: tuple[int, ...] = ()) -> None:
    """Something new happened at this turn, and no round in which it happened is part of a loop.

    Where it is an element of a stream (`own`), it ends what was repeating there by being new. Other streams begin
    again: two agents may say the same two sentences around work that is new each time.
    """
    run.news = run.found = index
    _begin_again(run, own)


def _begin_again(run: RunState, own: tuple[int, ...] = ()) -> None:
    for stream, ring in run.rings.items():
        if not ring.tags:
            continue
        if stream in own:
            ring.active.clear()
        elif stream != LEFT:
            ring.clear()


def note_poll(run: RunState, index: int) -> None:
    """Somebody waits: what is repeated meanwhile is no loop, but nothing new was found."""
    run.news = index
    _begin_again(run)


def note_progress(run: RunState, index: int) -> None:
    """Something measured got better than ever before in this run."""
    run.progress = run.worked = index
    note_news(run, index)
    left = run.rings.get(LEFT)
    if left is not None:
        left.clear()
