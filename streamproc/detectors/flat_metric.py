"""STALL004 flat_metric: a named metric has stopped getting better.

Sees: a metric in `progress` (checklist, coverage, documentation score) that was not better than its best so far for
some iterations. Higher is better, but for the names that the policy lists under `lower_is_better`.

Why: a loop that is there to raise a number, and does not, has stalled.

False alarms: one step back is not a stall: the count is against the best so far, and other measured progress (tests,
another metric) starts it again, as does, outside cycles, a new tool answer of the same node in between.

Tuning: `warn` and `halt` count iterations after the best one; 0 turns a level off.

Reference: loop-safety requirement, "acceptance checklist completed items increased; docs completeness score increased".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core.decision import STALLED, Evidence, Finding
from streamproc.core.ladder import told
from streamproc.core.view import Kind, View
from streamproc.detectors.base import Example, level


@dataclass(frozen=True, slots=True)
class Limits:
    """Iterations without a better value than ever."""

    warn: int = 2
    halt: int = 3


class FlatMetric:
    """STALL004."""

    code = "STALL004"
    name = "flat_metric"
    kinds = Kind.METRIC

    def check(self, view: View, limits: Limits) -> Finding | None:
        if view.flat is None:
            return None
        metric, streak, best = view.flat
        reached = level(streak.count, limits.warn, limits.halt)
        loop = streak.first ^ view.node_tag
        if reached is None or told(view.run, self.code, loop, reached, view.index):
            return None
        value = (view.turn.progress or {})[metric]
        return Finding(
            code=self.code,
            level=reached,
            loop=loop,
            onset=streak.first,
            message=f"{metric[:60]} has not got better for {streak.count} iterations; it is at {value:g}.",
            evidence=Evidence(
                kind=self.name,
                count=streak.count,
                best=best,
                reason=metric[:60],
                iteration=view.cycle.iterations if view.cycle is not None else None,
            ),
            reason=STALLED,
            status="stalled",
        )


DETECTOR = FlatMetric()


def _scored(*values: float, name: str = "docs_score") -> list[dict[str, object]]:
    return [{"node": "writer", "progress": {name: value}} for value in values]


HEALTHY = [
    Example("it rises", _scored(0.2, 0.4, 0.5, 0.7, 0.9)),
    Example("one step back", _scored(0.2, 0.4, 0.3, 0.5, 0.7)),
    Example("another metric rises", [
        {"node": "writer", "progress": {"docs_score": 0.5, "items": n}} for n in range(6)
    ]),
]  # fmt: skip
STUCK = [
    Example("three iterations at 0.5", _scored(0.2, 0.5, 0.5, 0.5, 0.5), "halt", 4),
    Example("up and down below the best", _scored(0.6, 0.5, 0.6, 0.4), "halt", 3),
]
