"""A histogram of durations, counted without a lock: all who add to it are in one thread."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BucketCounts:
    """How many values fell into each bucket; `bounds` are the upper ends, inclusive, without the last, infinite one."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all values."""

    def add(self, value: float, times: int = 1) -> None:
        """Count a value; a negative one, of two clocks that differ, as 0."""
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus shows them: the upper end as text, and how many values are not above it."""
        ends = [*map(str, self.bounds), "+Inf"]
        return list(zip(ends, map(float, accumulate(self.counts)), strict=True))
