"""TREE004 spawn_pace: runs of a session are born too fast.

Sees: the births of a session within the last minute, in steps of 10 seconds of log time, against `maxSpawnsPerMinute`:
at 80 % the newborn and its ancestors are warned, above the limit a newborn is halted at once, and after ten refused
births in a row all runs of the session are halted. Without a limit an unusual pace warns: 60 births within a minute by
runs other than the root, ten times as many as a minute had before, or 30 births by runs that are themselves younger
than a minute. A log without times has no pace.

Why: a tree that grows by itself doubles within seconds; a person notices it at the bill.

False alarms: a fan-out by the root, however wide, has no unusual pace. One by a child may warn if it is a second one.

Tuning: declare `maxSpawnsPerMinute` on the `run.started` of the root, or set it in the policy, where it applies to
every session; of several declared limits the lowest applies, and no run can raise that of the policy. `warn_percent` is
the share of the limit that warns, `halt_refusals` how many births in a row are refused before the session halts.
`pace_births`, `pace_multiple` and `cascade_births` are those of an unusual pace. 0 turns a level off.

Reference: 188 agents within one minute (claude-code#69332).
"""

from __future__ import annotations

from typing import Any

from streamproc.core.session_tree import PACE
from streamproc.detectors.base import START_MS, Example, Finding, View
from streamproc.detectors.tree_detector import LimitDetector, family, tree_event


class SpawnPace(LimitDetector):
    code, name = "TREE004", "spawn_pace"
    unit, budget = "births", "maxSpawnsPerMinute"
    over = "runs born within a minute"
    kept = "Wait before starting another"

    class Limits:
        """A share in percent, a number of births, and what an unusual pace is."""

        warn_percent: int = 80
        halt_refusals: int = 10
        pace_births: int = 60
        pace_multiple: int = 10
        cascade_births: int = 30

    def settings(self, limits: Any) -> Any:
        if limits is None:
            return {}
        pace = [limits.pace_births, limits.pace_multiple, limits.cascade_births]
        return super().settings(limits) | {"tree_pace": pace}

    def check(self, view: View, limits: Any) -> Finding | None:
        event = tree_event(view, PACE)
        if event is None:
            return super().check(view, limits)
        what = f"{event.used} runs of the session were born within a minute, the latest is {event.about}"
        return self.told(event, f"{what}: an unusual pace (the mark is {event.limit}).", action="warn")


DETECTOR = SpawnPace()
_THREE = {"budgets": {"maxSpawnsPerMinute": 3}}


def _every(seconds: int, count: int) -> list[dict[str, Any]]:
    return family(*({"at": START_MS + n * seconds * 1_000} for n in range(count)))[1:]


HEALTHY = [
    Example("births at a pace below the limit", _every(30, 12), policy=_THREE),
    Example("a map over 200 files at once", _every(0, 200)),
    Example("a log without times", family(*[{}] * 9), policy=_THREE),
]
STUCK = [
    Example("births above the limit", _every(1, 4), "halt", 0, policy=_THREE),
    Example("newborns that give birth at once", family(
        {"at": START_MS}, *({"at": START_MS + n, "parent_run_id": f"child-{n // 3}"} for n in range(40)),
    ), "warn", 0),
]  # fmt: skip
