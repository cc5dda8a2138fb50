"""STALL004 flat_metric: a named metric has stopped improving.

Sees: a metric in `progress` (checklist, coverage, documentation score) of one node that has not beaten its best value
for some iterations. Higher is better, except for the names that the policy lists under `lower_is_better` and for names
that contain one of those words (`val_loss`, `open_issues`).

Why: a loop that exists to raise a number and does not has stalled.

False alarms: one step back is not a stall, because the count is against the best value so far. Other measured progress
(tests, another metric) restarts the count; outside cycles, so does a new tool answer of the same node in between. A
metric that reaches a new low at each report may be meant to fall: unless its name is unambiguous, it only warns.

Tuning: `warn` and `halt` count iterations after the best one; 0 turns a level off. `gate` names what else restarts the
count: `results`, the node's own calls, as above; `none`, only measured progress and a person, where each turn is a
whole session with calls of its own; `any`, also new words.

Reference: loop-safety requirement, "acceptance checklist completed items increased; docs completeness score
increased".
"""

from __future__ import annotations

from streamproc.core.signals.novelty import Gate
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, iteration, kind, level


class FlatMetric(Detector):
    code, name = "STALL004", "flat_metric"
    kinds = kind.METRIC
    evidence = "count", "iteration", "best", "reason"
    gated = "metrics"
    status = "stalled"

    class Limits:
        """Iterations without a new best value."""

        warn: int = 2
        halt: int = 3
        gate: Gate = Gate.RESULTS  # a node that looks into new things works on it

    def check(self, view: View, limits: Limits) -> Finding | None:
        if view.flat is None:
            return None
        name, count, first, best, perhaps_falling = view.flat
        reached = level(count, limits.warn, limits.halt)
        if reached is not None and perhaps_falling:
            reached = Level.WARN
        loop = first ^ view.node_tag
        if reached is None or self.reported(view, loop, reached):
            return None
        hint = " (if it should fall, list it under lower_is_better)" if perhaps_falling else ""
        value = (view.turn.progress or {})[name]
        message = f"{name[:60]} has not improved for {count} iterations and is now {value:g}{hint}."
        return self.finding(
            reached, loop, message, onset=first, count=count, best=best, reason=name[:60], iteration=iteration(view)
        )


DETECTOR = FlatMetric()


def _scored(*values: float, name: str = "docs_score") -> list[dict[str, object]]:
    return [{"node": "writer", "progress": {name: value}} for value in values]


HEALTHY = [
    Example("a metric that rises", _scored(0.2, 0.4, 0.5, 0.7, 0.9)),
    Example("one step back", _scored(0.2, 0.4, 0.3, 0.5, 0.7)),
    Example("a loss that falls", _scored(0.9, 0.7, 0.6, 0.4, 0.3, name="val_loss")),
    Example("each node measures its own work", [
        {"node": node, "progress": {"speed": value}} for node in ("a", "b", "c") for value in (0.6, 0.4)
    ]),
    Example("another task begins lower", [
        {"node": "writer", "task_id": task, "progress": {"docs_score": value}}
        for task, values in (("a", (0.7, 0.8, 0.9)), ("b", (0.1, 0.2, 0.3, 0.4))) for value in values
    ]),
    Example("another metric rises", [
        {"node": "writer", "progress": {"docs_score": 0.5, "items": n}} for n in range(6)
    ]),
]  # fmt: skip
STUCK = [
    Example("under `gate: none`, three iterations at 0.5 of sessions that read", [
        call("read", {"f": n}, f"text {n}", node="writer", progress={"docs_score": 0.5}) for n in range(4)
    ], "halt", 3, {"detectors": {"STALL004": {"gate": "none"}}}),
    Example("three iterations at 0.5", _scored(0.2, 0.5, 0.5, 0.5, 0.5), "halt", 4),
    Example("a falling metric that the policy does not list", _scored(9, 7, 6, 4, 3, 2, name="kilometres"), "warn", 2),
    Example("a loss that stops falling", _scored(0.9, 0.4, 0.5, 0.4, 0.4, name="val_loss"), "halt", 4),
    Example("up and down below the best", _scored(0.6, 0.5, 0.6, 0.4), "halt", 3),
]  # fmt: skip
