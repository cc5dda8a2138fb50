"""Novelty: what a run has had before, and when something new last happened. All other signals share it.

*News* is a (call, answer) pair, statement, artifact or test result that is new to the run. It ends every repetition,
in every stream of hashes. Memory: `SEEN_MAX` tags; past it, the least recent is dropped.

A `Gate` says which news ends the repetitions that one detector counts. Each has a mark in the state: `last_news` of
anything, `last_result` without the words of nodes, and `last_progress` for the plain count.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from streamproc.core.records import Record, Tags, ccall, cclass, cfunc, final, i32, tag32, u64
from streamproc.core.signals.periods import ARTIFACTS, NO_STREAM, Streams

SEEN_MAX: Final = 96  # tags known to the run; must hold three rounds of the longest period (16) of two streams


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
    streams: Streams  # the streams in which news ends repetitions; stored beside this record

    def __init__(self, streams: Streams) -> None:
        self.seen, self.streams = Tags(SEEN_MAX), streams
        super().__init__(self.seen)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.last_news = self.last_discovery = self.last_result = self.last_progress = -1
        self.last_answer_change = self.last_measurement = self.last_success = -1

    @ccall
    def remember(self, tag: u64) -> bool:
        """Record a tag, and return whether it is new to the run."""
        return self.seen.add(tag32(tag))

    @ccall
    def last_end(self, gate: Gate) -> i32:
        """Return the last turn that ended the repetitions behind a gate."""
        if gate is Gate.NONE:
            return self.last_progress
        return self.last_result if gate is Gate.RESULTS else self.last_news

    @ccall
    def restart_of(self, gate: Gate, worked: i32) -> i32:
        """Return the last turn that restarted the count of an unchanged result. Behind `Gate.RESULTS` the work of the
        node itself does (`worked`: its last turn with news of a call), and that of others does not."""
        restart: i32 = self.last_progress
        if gate is Gate.NONE:
            return restart
        restart = max(restart, worked)
        return restart if gate is Gate.RESULTS else max(restart, self.last_news)

    @ccall
    def note_news(self, index: i32, own: u64 = NO_STREAM, other: u64 = NO_STREAM) -> None:
        """Record news in this turn, an element of the streams `own` and `other`: no round that contains it is part of a
        loop. Two agents may say the same two sentences around work that is new each time."""
        self.last_news = self.last_discovery = self.last_result = index
        self.streams.end(own, other)

    @cfunc
    def note_words(self, index: i32, own: u64, other: u64) -> None:
        """Record news that consists of a node's words only: no result."""
        self.last_news = self.last_discovery = index
        self.streams.end(own, other)

    @cfunc
    def note_poll(self, index: i32) -> None:
        """Record a poll: what repeats while the run waits is not a loop, but nothing new was found."""
        self.last_news = self.last_result = index
        self.streams.end(NO_STREAM, NO_STREAM)

    @ccall
    def note_progress(self, index: i32) -> None:
        """Record that a measured value is better than ever before in this run."""
        self.last_progress = self.last_success = index
        self.note_news(index)
        self.streams.forget(ARTIFACTS)
