"""BUDGET006 clock: a run has reached its time limit.

Sees: log time since the first event of a run against `maxRuntimeMs`. If the policy holds the usual runtime of this
workflow, a multiple of that (`p99_s` x `p99_multiple`) applies as well, and the shorter limit wins. Detected at the
next event of the run or, if none comes, by the `deadline` event that the worker publishes. The decision has the type
`run.timed_out` and carries the last known status of the run, so that the run's results can be saved and continued
from.

Why: the watchdog works whatever made the run slow: a provider that hangs, retries, a loop that no detector found.

False alarms: time that a run waits for a person counts, too. Give runs that talk to people more time, or no limit.

Tuning: declare `maxRuntimeMs` on `run.started` or in the policy. `streamproc baseline FILE` measures the p99 of each
workflow and prints the lines for the policy. It is a fixed number in the policy and is not learned at run time:
decisions about a run depend on its own log alone, so `scan`, a replay and any worker decide alike.

Reference: deliberation requirement, layer 4: 3600 s, the last checkpoint is kept, status `timed_out`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.deadlines import Due
from streamproc.core.decision import Finding
from streamproc.core.marks import NEVER
from streamproc.core.run_state import RunState
from streamproc.core.scope import Scope
from streamproc.core.status import snapshot_of
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.detectors.breach import LimitLayer, layer_of, overdue


@dataclass(frozen=True, slots=True)
class Limits:
    """The limit itself is a budget (`maxRuntimeMs`). These two are off until you measure them."""

    p99_s: int = 0  # 99 of 100 runs of this workflow take at most this long; differs by workflow, so no default
    p99_multiple: int = 0  # a run that takes this many times p99_s is too slow


class RunClock:
    """BUDGET006."""

    code = "BUDGET006"
    name = "clock"
    budgets = ("maxRuntimeMs",)
    kinds = kind.BUDGET | kind.CLOCK

    def budget_marks(self, limits: Limits, budgets: Mapping[str, int], _: Scope) -> dict[str, int]:
        limit_ms = _limit_ms(budgets, limits)
        return {"runtime_ms": NEVER if limit_ms is None else limit_ms}

    def check(self, view: View, limits: Limits) -> Finding | None:
        run = view.run
        limit_ms = _limit_ms(view.budgets, limits) if limits.p99_s else view.budgets.get("maxRuntimeMs")
        if limit_ms is None or run.at_ms - run.started_ms < limit_ms:
            return None
        layer = layer_of(view, "maxRuntimeMs")
        if limit_ms != view.budgets.get("maxRuntimeMs"):
            layer = LimitLayer("detector", f"{limits.p99_multiple} times the usual {limits.p99_s} s")
        found = overdue(self, run.at_ms - run.started_ms, limit_ms, "The run", 0, layer)
        found.type, found.stop = "run.timed_out", "timeout"
        found.evidence.snapshot = snapshot_of(run, view.last_event_ms, view.budgets)
        return found

    def due(self, run: RunState, budgets: Mapping[str, int], limits: Limits) -> list[Due]:
        limit_ms = _limit_ms(budgets, limits)
        return [] if limit_ms is None else [Due(run.started_ms + limit_ms, self.code, run.started_ms)]


def _limit_ms(budgets: Mapping[str, int], limits: Limits) -> int | None:
    declared_ms = budgets.get("maxRuntimeMs")
    usual_ms = limits.p99_s * limits.p99_multiple * 1000
    if not usual_ms:
        return declared_ms
    return usual_ms if declared_ms is None else min(declared_ms, usual_ms)


DETECTOR = RunClock()

_AT_MS = 1_767_225_600_000  # 2026-01-01
_HOUR = {"type": "run.started", "budgets": {"maxRuntimeMs": 3_600_000}, "at": _AT_MS}

HEALTHY = [
    Example("no limit is set", [said("agent", f"day {n}", at=_AT_MS + n * 86_400_000) for n in range(3)]),
    Example("finished within the hour", [
        _HOUR, *(said("agent", f"step {n}", at=_AT_MS + n * 200_000) for n in range(18)),
        {"type": "run.finished", "at": _AT_MS + 3_599_000},
    ]),
]  # fmt: skip
STUCK = [
    Example("still running after an hour", [
        _HOUR, *(said("agent", f"step {n}", at=_AT_MS + n * 500_000) for n in range(9)),
    ], "halt", 8),
    Example("no event before the deadline", [
        _HOUR, said("agent", "step", at=_AT_MS + 500_000), {"type": "deadline", "at": _AT_MS + 3_600_000},
    ], "halt", 0),
]  # fmt: skip
