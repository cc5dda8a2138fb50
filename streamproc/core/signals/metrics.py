"""Named metrics that a node reports as progress: whether they get better than ever.

Memory: `METRICS_MAX` metrics of a run, with their best and worst values; most runs report one or two.

Policy names the metrics that should fall. Other metrics should rise, also if their name gives no hint; but if such a
metric fell at every report, it may be meant to fall, and the run is not halted for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from streamproc.core.run_state import Metric, RunState
from streamproc.core.signals.novelty import note_progress, remember_tag

METRICS_MAX: Final = 8  # named metrics of one run; past it, the oldest is dropped
METRIC_BYTES: Final = 48  # of an encoded state
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
    metric: Metric
    best: float  # as it was reported, with its own sign
    perhaps_falling: bool  # whether it may be meant to fall


def observe_metrics(
    run: RunState,
    node_tag: int,
    progress: dict[str, float],
    index: int,
    tag: Callable[[str], int],
    lower: frozenset[str],
    stamp: int,
    since: int,
) -> Flat | None:
    """Record the metrics of a turn; a new best value is progress. Return the metric that has been flat for the most
    iterations, or None if one of them improved in this turn."""
    flattest: Flat | None = None
    for name, value in progress.items():
        way = direction(name, lower)
        signed = -value if way < 0 else value
        metric = run.metrics.get(key := tag(name) ^ node_tag)
        if remember_tag(run, key ^ hash(value)):
            run.last_measurement = index
        if metric is None:
            if len(run.metrics) >= METRICS_MAX:
                del run.metrics[next(iter(run.metrics))]
                run.evicted += 1
            else:
                run.size_left -= METRIC_BYTES
            run.metrics[key] = Metric(signed, signed, 0, 0, index, stamp)
        elif signed > metric.best:
            metric.best = signed
            metric.count, metric.first, metric.stamp = 0, index, stamp
            note_progress(run, index)
        else:
            _count(metric, signed, index, stamp, since)
            if flattest is None or metric.count > flattest.metric.count:
                best = -metric.best if way < 0 else metric.best
                flattest = Flat(name, metric, best, way == 0 and metric.falls == metric.count)
    return flattest if run.last_progress != index else None


def _count(metric: Metric, signed: float, index: int, stamp: int, since: int) -> None:
    """Count an iteration without a better value, and whether the value was lower than ever."""
    if since > metric.first:
        metric.count = metric.falls = 0
        metric.first = index
    elif metric.stamp != stamp:
        metric.count += 1
        metric.falls += signed < metric.lowest
    metric.lowest = min(metric.lowest, signed)
    metric.stamp = stamp


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
