"""Text-only streaks: consecutive turns of one node that consist of a text and nothing else, in whatever words.

Any evidence of work in between ends a streak, whichever node reports it; a turn without evidence neither counts nor
ends one. Memory: the streak in progress, one a run.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import RunState, TextStreak
from streamproc.model.wire import Content, Turn

PAGE: Final = 1_500  # characters; a text of a page may be the work itself, such as a chapter
TEXT_STREAK_BYTES: Final = 40


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
    note_text_turn(run, index)
    streak = run.text_streak
    if streak is None:
        run.size_left -= TEXT_STREAK_BYTES
    if streak is None or streak.node != node_tag or streak.topic != topic:
        streak = run.text_streak = TextStreak(node_tag, topic, index)
    else:
        streak.count += 1
        streak.not_longer += text.size <= streak.size
    streak.pages += text.size >= PAGE
    streak.size = text.size
    return streak


def note_text_turn(run: RunState, index: int) -> None:
    """Record a turn after which the run may wait for a person."""
    if not run.text_turns:
        run.size_left -= TEXT_STREAK_BYTES
    run.text_turns = [index, run.text_turns[0] if run.text_turns else -1]


def may_wait(run: RunState, index: int) -> bool:
    """Whether the run may wait for a person after this turn, which must be one of the last two."""
    return not run.open_turns and index in run.text_turns
