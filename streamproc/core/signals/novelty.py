"""Novelty: what a run has had before, and when something new last happened. All other signals share it.

*News* is a (call, answer) pair, statement, artifact or test result that is new to the run. It ends every repetition,
in every stream of hashes. Memory: `SEEN_MAX` tags; past it, the least recent is dropped.

A `Gate` says which news ends the repetitions that one detector counts. Each has a mark in the state: `last_news` of
anything, `last_result` without the words of nodes, and `last_progress` for the plain count.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from streamproc.core.run_state import SEEN_BYTES, SEEN_MAX, TAG, RunState
from streamproc.core.signals.periods import ARTIFACTS, OWN

MIX: Final = 0x9E3779B97F4A7C15  # odd, with spread bits: multiplying by it keeps combined hashes distinct


class Gate(StrEnum):
    """What starts the count of a repetition again. Measured progress, a person's message and a resume always do."""

    ANY = "any"  # anything new: also the words of another node
    RESULTS = "results"  # results: of calls, tests, errors, artifacts, queries; a person's words
    NONE = "none"  # nothing else: the plain count


class Gates(NamedTuple):
    """The gates of a policy, by what repeats."""

    outputs: Gate = Gate.ANY  # LOOP001
    sequences: Gate = Gate.ANY  # LOOP002
    calls: Gate = Gate.ANY  # LOOP003
    artifacts: Gate = Gate.RESULTS  # STALL001
    failing_sets: Gate = Gate.RESULTS  # STALL002
    failing_counts: Gate = Gate.RESULTS  # STALL003
    metrics: Gate = Gate.RESULTS  # STALL004


def remember_tag(run: RunState, tag: int) -> bool:
    """Record a tag, and return whether it is new to the run."""
    seen = run.seen
    tag &= TAG
    if tag in seen:
        del seen[tag]  # moves to the recent end: tags that keep coming back are kept
        seen[tag] = 0
        return False
    seen[tag] = 0
    if len(seen) > SEEN_MAX:
        del seen[next(iter(seen))]
    else:
        run.size_left -= SEEN_BYTES
    return True


def last_end(run: RunState, gate: Gate) -> int:
    """Return the last turn that ended the repetitions behind a gate."""
    if gate is Gate.NONE:
        return run.last_progress
    return run.last_result if gate is Gate.RESULTS else run.last_news


def restart_of(run: RunState, gate: Gate, worked: int) -> int:
    """Return the last turn that restarted the count of an unchanged result. Behind `Gate.RESULTS` the work of the node
    itself does (`worked`: its last turn with news of a call), and that of others does not."""
    if gate is Gate.NONE:
        return run.last_progress
    restart = max(run.last_progress, worked)
    return restart if gate is Gate.RESULTS else max(restart, run.last_news)


def note_news(run: RunState, index: int, own: tuple[int, ...] = ()) -> None:
    """Record news in this turn: no round that contains it is part of a loop.

    Streams of which the news is an element (`own`) keep their tags, and lose their periods. All other streams are
    cleared: two agents may say the same two sentences around work that is new each time.
    """
    run.last_news = run.last_discovery = run.last_result = index
    _end_repetitions(run, own)


def note_words(run: RunState, index: int, own: tuple[int, ...]) -> None:
    """Record news that consists of a node's words only: no result."""
    run.last_news = run.last_discovery = index
    _end_repetitions(run, own)


def note_result(run: RunState, index: int) -> None:
    """Record a result that is news for `Gate.RESULTS` only: the turn's statement decides about the other streams."""
    run.last_result = index


def note_poll(run: RunState, index: int) -> None:
    """Record a poll: what repeats while the run waits is not a loop, but nothing new was found."""
    run.last_news = run.last_result = index
    _end_repetitions(run)


def note_progress(run: RunState, index: int) -> None:
    """Record that a measured value is better than ever before in this run."""
    run.last_progress = run.last_success = index
    note_news(run, index)
    artifacts = run.hash_windows.get(ARTIFACTS)
    if artifacts is not None:
        artifacts.clear()


def _end_repetitions(run: RunState, own: tuple[int, ...] = ()) -> None:
    for stream, window in run.hash_windows.items():
        if not window.tags:
            continue
        if stream in own:
            window.active.clear()
        elif stream < OWN and stream != ARTIFACTS:
            window.clear()
