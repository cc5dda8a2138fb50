"""Text-only streaks: consecutive turns of one node that consist of a text and nothing else, in whatever words.

Any evidence of work in between ends a streak, whichever node reports it; a turn without evidence neither counts nor
ends one. Memory: the streak in progress, one a run.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import RunState, TextStreak
from streamproc.model.wire import Content, Turn

PAGE: Final = 1_500  # characters; a text of a page may be the work itself, such as a chapter
TEXT_TURNS_BYTES: Final = 12


def is_text_only(turn: Turn) -> bool:
    """Whether a turn without calls consists of a text and nothing else: no result, no query, no hand-over, no round."""
    if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
        return False
    return not (
        turn.tests or turn.artifact or turn.structured or turn.docs or turn.query or turn.next or turn.errors
        or turn.progress
    )  # fmt: skip


def observe_text_streak(run: RunState, node_tag: int, topic: int, text: Content, index: int) -> TextStreak:
    """Record a text-only turn, and return the streak that it starts or extends."""
    streak, before, size = run.text_streak, run.text_turns, text.size
    if before:
        before[0], before[1] = index, before[0]
    else:
        run.text_turns = [index, -1]
        run.size_left -= TEXT_TURNS_BYTES
    if streak is None or streak.node != node_tag or streak.topic != topic:
        streak = run.text_streak = TextStreak(node_tag, topic, index, 1, int(size >= PAGE), size)
        return streak
    streak.count += 1
    if size <= streak.size:
        streak.not_longer += 1
    if size >= PAGE:
        streak.pages += 1
    streak.size = size
    return streak


def may_wait(run: RunState, index: int) -> bool:
    """Whether the run may wait for a person after this turn, which must be one of the last two."""
    return not run.open_turns and index in run.text_turns
