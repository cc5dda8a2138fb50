"""Timing on a machine that also does other work: many short pieces, their median, the best of several rounds.

The median ignores interruptions of a few pieces; the best round is the least disturbed one. Single-threaded work is
timed by the thread's processor clock, which stops while other threads run. The garbage collector stays on, as in a
worker; its share is measured separately, because medians hide it.
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
    """Measures the share of time that the garbage collector takes."""

    def __init__(self) -> None:
        self._ns = self._since = 0
        self._began = thread_time_ns()
        self._ended = 0

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._since = thread_time_ns()
        else:
            self._ns += thread_time_ns() - self._since

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self._ns / max(1, (self._ended or thread_time_ns()) - self._began)


@contextmanager
def collector_time() -> Iterator[CollectorTime]:
    """Measure the collector, without the objects that exist already: a worker does not hold the whole log in memory."""
    gc.collect()
    gc.freeze()
    watch = CollectorTime()
    gc.callbacks.append(watch._on_collection)
    try:
        yield watch
    finally:
        watch._ended = thread_time_ns()
        gc.callbacks.remove(watch._on_collection)
        gc.unfreeze()


@contextmanager
def worker_gc_settings() -> Iterator[None]:
    """Use the worker's garbage collector thresholds."""
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def piece_us(work: Callable[[T], Any], piece: T, count: int) -> float:
    """Run `work` on `piece`; return this thread's microseconds for each of its `count` items."""
    began = thread_time()
    work(piece)
    return (thread_time() - began) / count * 1e6


def in_pieces(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Split the items into pieces of `size`. A shorter rest is dropped, to keep pieces comparable."""
    whole = max(size, len(items) - len(items) % size)
    return [items[start : start + size] for start in range(0, min(whole, len(items)), size)]


def best_median(rounds: Sequence[Sequence[float]]) -> float:
    """Return the smallest of the rounds' medians."""
    return min(median(pieces) for pieces in rounds)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a `share` (0 to 1) of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def interleaved(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure the contenders alternately, so that a busy minute affects all of them; return their figures."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            figures[name].append(measure())
    return figures
