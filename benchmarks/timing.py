"""Timing on a machine that has other things to do: many short pieces, their median, the best of several rounds.

A median of pieces forgets what interrupted a few of them; the best round is the one that was disturbed least. What
computes in one thread is timed by that thread's own clock, which stands still while others have the core. The
collector stays on, as it is in a worker; what it took is measured and told, because medians hide it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import thread_time, thread_time_ns
from typing import Any, TypeVar

from streamproc.worker.limits import GC_THRESHOLD

T = TypeVar("T")


class CollectorTime:
    """How much of some time the garbage collector took."""

    def __init__(self) -> None:
        self._ns = self._since = 0
        self._began = thread_time_ns()
        self._ended = 0

    def _heard(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._since = thread_time_ns()
        else:
            self._ns += thread_time_ns() - self._since

    @property
    def share(self) -> float:
        """Of the whole time, between 0 and 1."""
        return self._ns / max(1, (self._ended or thread_time_ns()) - self._began)


@contextmanager
def collector_time() -> Iterator[CollectorTime]:
    """Measure the collector. What exists already is frozen: a worker does not hold the whole log in memory."""
    gc.collect()
    gc.freeze()
    watch = CollectorTime()
    gc.callbacks.append(watch._heard)
    try:
        yield watch
    finally:
        watch._ended = thread_time_ns()
        gc.callbacks.remove(watch._heard)
        gc.unfreeze()


@contextmanager
def collector_of_a_worker() -> Iterator[None]:
    """Let the collector look as rarely as it does in a worker."""
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def piece_us(work: Callable[[T], Any], piece: T, count: int) -> float:
    """Microseconds of this thread for each of the `count` things in `piece`, on which `work` is done."""
    began = thread_time()
    work(piece)
    return (thread_time() - began) / count * 1e6


def in_pieces(things: Sequence[T], size: int) -> list[Sequence[T]]:
    """The things, `size` at a time; what is left over at the end is left out, so that pieces are alike."""
    whole = max(size, len(things) - len(things) % size)
    return [things[place : place + size] for place in range(0, min(whole, len(things)), size)]


def best_median(rounds: Sequence[Sequence[float]]) -> float:
    """The smallest of the rounds' medians."""
    return min(median(pieces) for pieces in rounds)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def interleaved(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each contender's figures, measured in turns, so that a busy minute is everybody's."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            figures[name].append(measure())
    return figures
