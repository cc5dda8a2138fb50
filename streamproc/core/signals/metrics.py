"""Named metrics that a node reports as progress: whether they get better than ever.

Memory: `METRICS_MAX` metrics of a run, with their best and worst values; most runs report one or two. Read by STALL004.

Policy names the metrics that should fall. Other metrics should rise, also if their name gives no hint; but if such a
metric fell at every report, it may be meant to fall, and the run is not halted for it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from streamproc.core.now import Now
from streamproc.core.records import Row, Table, cclass, cfunc, f64, final, hash64, i32, u32, u64

METRICS_MAX: Final = 8  # named metrics of one run; past it, the oldest is dropped
WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

# Words of metrics that should rise, whatever else their names contain: `errors_fixed`, `todo_done`.
RISING: Final = frozenset({
    "accuracy", "checklist", "closed", "complete", "completed", "completeness", "completion", "convergence", "coverage",
    "done", "finished", "fixed", "handled", "passed", "passing", "precision", "progress", "quality", "recall",
    "removed", "resolved", "score", "solved", "success",
})  # fmt: skip


class Flat(NamedTuple):
    """A metric that is not better than its best value so far."""

    name: str
    iterations: int  # since the best value
    first: int  # turn of the best value, or of the last work that started the count again
    best: float  # as it was reported, with its own sign
    perhaps_falling: bool  # whether it may be meant to fall


@final
@cclass
class Metric(Row):
    """A named metric of a node, with its sign changed if it should fall: higher is always better. Key: tag of its name,
    its node and its task."""

    best: f64  # best value so far
    lowest: f64  # worst value so far
    count: u32  # iterations since the best value
    falls: u32  # how many of them were each lower than any before
    first: i32  # turn of the best value, or of the last work that started the count again
    stamp: i32  # iteration in which it was last counted

    @cfunc
    def begin(self, value: f64, index: i32, stamp: i32) -> None:
        """Record a value that is better than ever."""
        self.best, self.count, self.first, self.stamp = value, 0, index, stamp

    @cfunc
    def add(self, value: f64, index: i32, stamp: i32, since: i32) -> None:
        """Count an iteration without a better value, and whether the value was lower than ever."""
        if since > self.first:
            self.count = self.falls = 0
            self.first = index
        elif self.stamp != stamp:
            self.count += 1
            if value < self.lowest:
                self.falls += 1
        self.lowest = min(self.lowest, value)
        self.stamp = stamp


@cfunc
def observe_metrics(
    metrics: Table, now: Now, progress: dict[str, float], lower: frozenset[str], stamp: i32, since: i32
) -> Flat | None:
    """Record the metrics of a turn; a new best value is progress. Return the metric that has been flat for the most
    iterations, or None if one of them improved in this turn."""
    flattest: Flat | None = None
    way: i32
    key: u64
    signed: f64
    task: u64 = hash64(now.names.tag(now.turn.task_id)) if now.turn.task_id else 0
    metric: Metric | None
    for name, value in progress.items():
        way = direction(name, lower)
        signed = -value if way < 0 else value
        key = hash64(now.tag(name)) ^ now.node_tag ^ task
        metric = metrics.find(key)
        if now.novelty.remember(key ^ hash64(hash(value))):
            now.novelty.last_measurement = now.index
        if metric is None:
            if metrics.full():
                now.evicted += 1
            metric = metrics.add(key)
            metric.lowest = signed
            metric.begin(signed, now.index, stamp)
        elif signed > metric.best:
            metric.begin(signed, now.index, stamp)
            now.novelty.note_progress(now.index)
        else:
            metric.add(signed, now.index, stamp, since)
            if flattest is None or metric.count > flattest.iterations:
                best = -metric.best if way < 0 else metric.best
                flattest = Flat(name, metric.count, metric.first, best, way == 0 and metric.falls == metric.count)
    return flattest if now.novelty.last_progress != now.index else None


@lru_cache(maxsize=4_096)  # names; a fleet has a handful
def direction(name: str, lower: frozenset[str]) -> int:
    """Return 1 if a metric should rise, -1 if it should fall (its name or a word of it is in `lower`), 0 if its name
    gives no hint."""
    if name in lower:
        return -1
    words = {word.lower() for word in WORD.findall(name)}
    if words & RISING:
        return 1
    return -1 if words & lower else 0
