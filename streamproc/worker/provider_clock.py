"""The clock of the breakers of providers: an open one must let probes through even if no one calls.

The worker that has a breaker's partition appends a statement without calls to the spend topic when its time has come,
by the broker's clock, as `worker.deadlines` does for runs. The breaker changes on that record, at the time when it was
due; one that comes twice, or late, changes nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from streamproc.core.providers import BREAKER_VERSION, CallStatement, due_ms, state_of
from streamproc.model.heartbeat import PROVIDERS_MAX
from streamproc.model.provider_state import PREFIX, ProviderState
from streamproc.worker.limits import PROVIDER_AGAIN_MS, PROVIDER_TICK_S
from streamproc.worker.spend import call_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.core.providers import ProviderRules
    from streamproc.worker.accounts_table import AccountStore
    from streamproc.worker.partition_pipeline import PartitionPipelines

log = logging.getLogger(__name__)


class ProviderClock:
    """Tells the breakers of this worker's partitions that their time has come."""

    def __init__(
        self, app: Any, rules: ProviderRules, store: AccountStore, pipelines: PartitionPipelines,
        now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._app = app
        self._rules = rules
        self._store = store
        self._pipelines = pipelines
        self._now_ms = now_ms
        self._told: dict[bytes, tuple[int, int]] = {}  # by key: the time that was told, and when

    async def run(self) -> None:
        """Look several times a second. Never returns."""
        while True:
            await asyncio.sleep(PROVIDER_TICK_S)
            if not (self._app.rebalancing or self._app.in_recovery):
                self.look()

    def look(self) -> None:
        """Append what is due, and what was not heard back for a while."""
        now_ms, told = self._now_ms(), self._told
        self._told = {}
        for part in list(self._store.partitions.values()):
            for key in [key for key, (due, _) in part.breakers.items() if due <= now_ms]:
                breaker = part.peek(key)
                due = due_ms(breaker, self._rules) if breaker is not None else 0
                if breaker is None or not due:
                    part.breakers.pop(key, None)
                    continue
                part.breakers[key] = due, breaker.held_since_ms
                before = told.get(key)
                if before is not None and before[0] == due and now_ms - before[1] < PROVIDER_AGAIN_MS:
                    self._told[key] = before
                elif due <= now_ms:
                    self._told[key] = due, now_ms
                    tick = CallStatement(BREAKER_VERSION, key.decode(), 0, [], due)
                    self._pipelines[part.partition].give(call_records([tick]))

    def states(self) -> list[ProviderState]:
        """Return the states of the breakers that hold calls back, the latest first: at most those of a heartbeat."""
        held = [
            (since_ms, key, part)
            for part in list(self._store.partitions.values())
            for key, (_, since_ms) in list(part.breakers.items())
            if since_ms
        ]
        latest = nlargest(PROVIDERS_MAX, held, key=lambda one: one[0])
        found = [(key, part.peek(key)) for _, key, part in latest]
        return [
            state_of(breaker, self._rules, key.decode().removeprefix(PREFIX))
            for key, breaker in found
            if breaker is not None
        ]
