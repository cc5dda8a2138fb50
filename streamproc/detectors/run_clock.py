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

from streamproc.core.deadlines import Due
from streamproc.core.marks import NEVER
from streamproc.core.run_state import RunState
from streamproc.core.scope import Scope
from streamproc.core.status import snapshot_of
from streamproc.detectors.base import START_MS, Example, Finding, RuleSettings, View, kind, said
from streamproc.detectors.budget_detector import BudgetDetector, LimitLayer, layer_of


class RunClock(BudgetDetector):
    code, name = "BUDGET006", "clock"
    budgets = ("maxRuntimeMs",)
    kinds = kind.BUDGET | kind.CLOCK
    evidence = (*BudgetDetector.evidence, "snapshot")

    class Limits:
        """The limit itself is a budget (`maxRuntimeMs`). These two are off until you measure them."""

        p99_s: int = 0  # 99 of 100 runs of this workflow take at most this long; differs by workflow, so no default
        p99_multiple: int = 0  # a run that takes this many times p99_s is too slow

        @property
        def usual_ms(self) -> int:
            """The multiple of the usual runtime; 0: off."""
            return self.p99_s * self.p99_multiple * 1000

    def settings(self, limits: Limits | None) -> RuleSettings:
        # As a budget, the usual runtime has a mark, so `check` is called at the turn that reaches it.
        return {"budgets": {"maxRuntimeMs": limits.usual_ms}} if limits is not None and limits.usual_ms else {}

    def budget_marks(self, limits: Limits, budgets: Mapping[str, int], _: Scope) -> dict[str, int]:
        return {"runtime_ms": self._limit_ms(budgets, limits)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        run, limit_ms = view.run, self._limit_ms(view.budgets, limits)
        if run.at_ms - run.started_ms < limit_ms:
            return None
        layer = layer_of(view, "maxRuntimeMs")
        if limit_ms != view.budgets.get("maxRuntimeMs"):
            layer = LimitLayer("detector", f"{limits.p99_multiple} times the usual {limits.p99_s} s")
        return self.overdue(
            run.at_ms - run.started_ms, limit_ms, "The run", 0, layer,
            type="run.timed_out", stop="timeout", snapshot=snapshot_of(run, view.last_event_ms, view.budgets),
        )  # fmt: skip

    def due(self, run: RunState, budgets: Mapping[str, int], limits: Limits) -> list[Due]:
        limit_ms = self._limit_ms(budgets, limits)
        return [] if limit_ms == NEVER else [Due(run.started_ms + limit_ms, self.code, run.started_ms)]

    def _limit_ms(self, budgets: Mapping[str, int], limits: Limits) -> int:
        return min(budgets.get("maxRuntimeMs", NEVER), limits.usual_ms or NEVER)


DETECTOR = RunClock()
_HOUR = {"type": "run.started", "budgets": {"maxRuntimeMs": 3_600_000}, "at": START_MS}
HEALTHY = [
    Example("no limit is set", [said("agent", f"day {n}", at=START_MS + n * 86_400_000) for n in range(3)]),
    Example("finished within the hour", [
        _HOUR, *(said("agent", f"step {n}", at=START_MS + n * 200_000) for n in range(18)),
        {"type": "run.finished", "at": START_MS + 3_599_000},
    ]),
]  # fmt: skip
STUCK = [
    Example("still running after an hour", [
        _HOUR, *(said("agent", f"step {n}", at=START_MS + n * 500_000) for n in range(9)),
    ], "halt", 8),
    Example("no event before the deadline", [
        _HOUR, said("agent", "step", at=START_MS + 500_000), {"type": "deadline", "at": START_MS + 3_600_000},
    ], "halt", 0),
]  # fmt: skip
