"""The metrics of the page: the standing fleet command, whether workers decide, and an estimate of what halts saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from streamproc.fleet.watch_metrics import watch_readings
from streamproc.metrics import Reading, fleet_readings
from streamproc.model.fleet_command import FLEET
from streamproc.model.newest import Newest
from streamproc.read_model import DecisionFilter

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.read_model import DecisionRow, ModelReader, ReadModel

HALTS_AT_ONCE: Final = 1_000  # looked at when the metrics are asked for; of more, the newest count
SEEN_MAX: Final = 4 * HALTS_AT_ONCE
USD_MICRO: Final = 1_000_000


class PageMetrics:
    """Counts what halts since the start have saved: the mean cost of a turn of each halted run, times the turns that
    its budget `maxSteps` had left. Runs without this budget, or without costs, count nothing."""

    def __init__(self, policy: Policy, model: ReadModel, reader: ModelReader) -> None:
        self._policy = policy
        self._model = model
        self._reader = reader
        self._saved: defaultdict[str, float] = defaultdict(float)  # USD, by code
        self._seen: Newest[str, None] = Newest(SEEN_MAX)  # ids of halts

    def readings(self) -> Iterable[Reading]:
        """Return the metrics as they are now."""
        for halt in reversed(self._model.decisions(DecisionFilter(severity="halt"), limit=HALTS_AT_ONCE)):
            if halt.id not in self._seen:
                self._seen[halt.id] = None
                self._saved[halt.code] += self._estimate(halt)
        yield from fleet_readings(self._status, lambda: self._saved)
        yield from watch_readings(self._reader.watching())

    def missing(self) -> list[str]:
        """Return what keeps the page from being ready, in words."""
        if self._reader.trouble is not None:
            return [f"Kafka: {self._reader.trouble}"]
        return [] if self._reader.caught_up else [f"reading: {self._reader.progress:.0%}"]

    def _status(self) -> str | None:
        if not self._reader.caught_up:
            return None
        return next((one.status for one in self._model.commands(standing=True) if one.scope == FLEET), "CLEAR")

    def _estimate(self, halt: DecisionRow) -> float:
        run = self._model.run(halt.run_id)
        if run is None or not run.turns or not run.cost_usd_micro:
            return 0.0
        budgets = self._policy.effective(run.workflow, run.tenant, "", run.user)["budgets"]
        left = max(0, int(budgets.get("maxSteps", 0)) - run.turns)
        return left * run.cost_usd_micro / run.turns / USD_MICRO
