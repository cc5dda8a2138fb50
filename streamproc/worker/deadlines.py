"""Deadlines: when an expected event does not arrive, the worker appends a `deadline` event, and the engine decides.

The table gives the next deadline of each run (`DeadlineQueue`), including runs that another worker owned before. The
worker appends a deadline only if its partition has been caught up for a while: after downtime of workers or of the
broker, events that seem to be missing mostly wait in the log or in a publisher's buffer. The engine sees the deadline
after all of them and decides by the log. So an extra deadline costs work and never causes a false halt, and two workers
that append the same deadline give it the same id.

Time is the broker's: the log has append times, and acknowledgements show how far the broker's clock is ahead of this
machine's. If the turns topic has the times of its publishers (an imported log), the log has no current time, and the
worker appends no deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError
from faust.types import TP

from streamproc.core.deadlines import deadline_event
from streamproc.model.wire import encode
from streamproc.worker import limits
from streamproc.worker.partition_lag import position_of
from streamproc.worker.publishing import OutgoingRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.core.engine import Engine
    from streamproc.kafka.partitioning import Home
    from streamproc.worker.partition_pipeline import PartitionPipelines
    from streamproc.worker.publishing import Publisher
    from streamproc.worker.runs_table import RunStore
    from streamproc.worker.tables import Runs

log = logging.getLogger(__name__)


class Deadlines:
    """Appends the deadlines of this worker's partitions."""

    def __init__(
        self,
        app: Any,
        turns_topic: str,
        engine: Engine,
        store: RunStore,
        pipelines: PartitionPipelines,
        publisher: Publisher,
        home: Home,
    ) -> None:
        self.appended = 0
        self.paused: Callable[[], bool] = lambda: False
        """Whether a command has stopped or paused the fleet, so that silence is expected. (The worker sets this.)"""
        self._app = app
        self._topic = turns_topic
        self._engine = engine
        self._store = store
        self._pipelines = pipelines
        self._publisher = publisher
        self._home = home
        self._ends: dict[int, int] = {}  # the end of each partition at the last check
        self._caught_up_s: dict[int, float] = {}  # when each became caught up, by the monotonic clock
        self._looked_s = 0.0
        self._logged = ""

    async def run(self) -> None:
        """Check the deadlines at intervals, and append those that are due. Never returns."""
        while True:
            await asyncio.sleep(limits.DEADLINE_TICK_S)
            try:
                await self._look()
            except Exception as problem:  # noqa: BLE001 (turns are processed, whatever fails here)
                self._caught_up_s.clear()
                if repr(problem) != self._logged:
                    self._logged = repr(problem)
                    log.warning("no deadlines for now: %s", self._logged)

    async def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s > limits.DEADLINE_BLIND_S:
            self._caught_up_s.clear()  # the broker was away, or this process was frozen
        self._looked_s = now_s
        for partition in await self._caught_up(now_s):
            runs = self._store.partitions.get(partition)
            if runs is not None and now_s - self._caught_up_s[partition] >= limits.DEADLINE_GRACE_S:
                await self._append(runs)

    async def _caught_up(self, now_s: float) -> list[int]:
        """Return the partitions in which everything is processed that was there at the last check."""
        consumer = self._app.consumer
        kept = self._store.partitions.keys()
        if not kept or self.paused() or self._app.rebalancing or self._app.in_recovery or not consumer.flow_active:
            self._caught_up_s.clear()
            self._ends.clear()
            return []
        mine = {tp.partition for tp in consumer.assignment() if tp.topic == self._topic and tp.partition in kept}
        for partition in mine:
            end = self._ends.get(partition)
            if end is not None and await position_of(consumer, self._pipelines, TP(self._topic, partition)) >= end:
                self._caught_up_s.setdefault(partition, now_s)
            else:
                self._caught_up_s.pop(partition, None)
        found = await consumer.highwaters(*(TP(self._topic, partition) for partition in mine)) if mine else {}
        self._ends = {tp.partition: end for tp, end in found.items()}
        return sorted(mine & self._caught_up_s.keys())

    async def _append(self, runs: Runs) -> None:
        now_ms = self._publisher.log_now_ms()
        outgoing = []
        for key in runs.deadline_queue.take(now_ms, limits.DEADLINES_MAX):
            state = runs.state(key) if self._home.holds(key, runs.partition) else None
            due = self._engine.next_deadline(state) if state is not None else None
            if due is None:
                continue
            if due.due_ms > now_ms:
                runs.deadline_queue.again(key, due.due_ms)
                continue
            outgoing.append(OutgoingRecord("turns", key, encode(deadline_event(key.decode(), due))))
        if not outgoing:
            return
        try:
            await self._publisher.publish(runs.partition, outgoing)
        except KafkaError:
            for outgoing_record in outgoing:
                runs.deadline_queue.again(outgoing_record.key or b"", now_ms)
            raise
        self.appended += len(outgoing)
        log.info("deadlines partition=%d appended=%d", runs.partition, len(outgoing))
