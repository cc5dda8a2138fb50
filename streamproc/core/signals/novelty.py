"""Novelty: what a run has had before, and when something new last happened. All other signals share it.

*News* is a (call, answer) pair, statement, artifact or test result that is new to the run. It ends every repetition,
in every stream of hashes. Memory: `SEEN_MAX` tags; past it, the least recent is dropped.

A `Gate` says which news ends the repetitions that one detector counts. Each has a mark in the state: `last_news` of
anything, `last_result` without the words of nodes, and `last_progress` for the plain count.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.core.records import Record, Table, Tags, ccall, cclass, cfunc, final, i32, tag32, u64
from streamproc.core.signals.periods import ARTIFACTS, NO_STREAM, OWN, HashWindow, forget_stream

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

SEEN_MAX: Final = 96  # tags known to the run; must hold three rounds of the longest period (16) of two streams
SEEN_BYTES: Final = 4  # of a state


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


@final
@cclass
class Novelty(Record):
    """When something last happened, as indices of turns; -1: never."""

    last_news: i32  # something new, or a poll: repeats from before it do not count
    last_discovery: i32  # something new, not counting polls
    last_result: i32  # a result that was new, or a poll: `last_news` without words of nodes
    last_progress: i32  # a measured value was better than ever
    last_answer_change: i32  # a call returned something else than before
    last_measurement: i32  # a metric value or changed answer that was new to the run
    last_success: i32  # progress, or a call that did not fail returned something new
    seen: Tags  # what the run has had before

    def __init__(self) -> None:
        self.seen = Tags(SEEN_MAX)
        super().__init__(self.seen)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.last_news = self.last_discovery = self.last_result = self.last_progress = -1
        self.last_answer_change = self.last_measurement = self.last_success = -1


@ccall
def remember_tag(run: RunState, tag: u64) -> bool:
    """Record a tag, and return whether it is new to the run."""
    if not run.novelty.seen.full():
        run.size_left -= SEEN_BYTES
    return run.novelty.seen.add(tag32(tag))


@ccall
def last_end(run: RunState, gate: Gate) -> i32:
    """Return the last turn that ended the repetitions behind a gate."""
    if gate is Gate.NONE:
        return run.novelty.last_progress
    return run.novelty.last_result if gate is Gate.RESULTS else run.novelty.last_news


@ccall
def restart_of(run: RunState, gate: Gate, worked: i32) -> i32:
    """Return the last turn that restarted the count of an unchanged result. Behind `Gate.RESULTS` the work of the node
    itself does (`worked`: its last turn with news of a call), and that of others does not."""
    restart: i32 = run.novelty.last_progress
    if gate is Gate.NONE:
        return restart
    restart = max(restart, worked)
    return restart if gate is Gate.RESULTS else max(restart, run.novelty.last_news)


@ccall
def note_news(run: RunState, index: i32, own: u64 = NO_STREAM, other: u64 = NO_STREAM) -> None:
    """Record news in this turn: no round that contains it is part of a loop.

    Streams of which the news is an element (`own`, `other`) keep their tags, and lose their periods. All other streams
    are cleared: two agents may say the same two sentences around work that is new each time.
    """
    run.novelty.last_news = run.novelty.last_discovery = run.novelty.last_result = index
    _end_repetitions(run, own, other)


@cfunc
def note_words(run: RunState, index: i32, own: u64, other: u64) -> None:
    """Record news that consists of a node's words only: no result."""
    run.novelty.last_news = run.novelty.last_discovery = index
    _end_repetitions(run, own, other)


@cfunc
def note_poll(run: RunState, index: i32) -> None:
    """Record a poll: what repeats while the run waits is not a loop, but nothing new was found."""
    run.novelty.last_news = run.novelty.last_result = index
    _end_repetitions(run, NO_STREAM, NO_STREAM)


@ccall
def note_progress(run: RunState, index: i32) -> None:
    """Record that a measured value is better than ever before in this run."""
    run.novelty.last_progress = run.novelty.last_success = index
    note_news(run, index)
    forget_stream(run, ARTIFACTS)


@cfunc
def _end_repetitions(run: RunState, own: u64, other: u64) -> None:
    _end_periods(run.windows, own, other)
    if run.inner_windows is not None:
        _end_periods(run.inner_windows, own, other)


@cfunc
def _end_periods(windows: Table, own: u64, other: u64) -> None:
    window: HashWindow
    for window in windows.rows:
        if window.key in (own, other):
            window.held.clear()
        elif window.key < OWN and window.key != ARTIFACTS:
            window.forget()
