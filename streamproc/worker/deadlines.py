"""Something should have happened, and nothing did: then a `deadline` event goes into the log, and the engine decides.

The worker knows from the table when each of its runs wants to be asked (`Alarms`), also those that another worker
kept before. It appends a deadline only where its partition is caught up, and has been for a while: what looks like
silence after downtime, of workers or of the broker, mostly waits in the log or in a publisher's buffer. The engine
sees the deadline behind all of that, and decides by the log; so a deadline too many is work, never a false halt, and
two workers that append the same one append it under one id.

Time is the broker's: the log's times are its append times, and how far its clock is ahead of this machine's is known
from its acknowledgements. Where a turns topic keeps its publishers' times (an imported log), now is not in the log,
and there are no deadlines.
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
from streamproc.worker.publishing import OutgoingRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.core.engine import Engine
    from streamproc.worker.partition_pipeline import PartitionPipelines
    from streamproc.worker.publishing import Publisher
    from streamproc.worker.tables import Runs, RunStore

log = logging.getLogger(__name__)


class Deadlines:
    """Watches the clocks of this worker's partitions."""

    def __init__(
        self,
        app: Any,
        turns_topic: str,
        engine: Engine,
        store: RunStore,
        lanes: PartitionPipelines,
        publisher: Publisher,
    ) -> None:
        self.appended = 0
        self.paused: Callable[[], bool] = lambda: False
        """Whether people have ordered the fleet to stand still: then silence is obedience. (The worker sets this.)"""
        self._app = app
        self._topic = turns_topic
        self._engine = engine
        self._store = store
        self._lanes = lanes
        self._publisher = publisher
        self._ends: dict[int, int] = {}  # where the partitions ended when last asked
        self._caught_up_s: dict[int, float] = {}  # since when each of them is caught up, by the monotonic clock
        self._looked_s = 0.0
        self._told = ""

    async def run(self) -> None:
        """For ever: look at the clocks, and append what is due."""
        while True:
            await asyncio.sleep(limits.DEADLINE_TICK_S)
            try:
                await self._look()
            except Exception as problem:  # noqa: BLE001 (whatever is wrong with deadlines, turns are stepped)
                self._caught_up_s.clear()
                if repr(problem) != self._told:
                    self._told = repr(problem)
                    log.warning("no deadlines for now: %s", self._told)

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
        """The partitions in which everything was stepped that was there at the last look."""
        consumer = self._app.consumer
        kept = self._store.partitions.keys()
        if not kept or self.paused() or self._app.rebalancing or self._app.in_recovery or not consumer.flow_active:
            self._caught_up_s.clear()
            self._ends.clear()
            return []
        mine = {tp.partition for tp in consumer.assignment() if tp.topic == self._topic and tp.partition in kept}
        for partition in mine:
            end = self._ends.get(partition)
            if end is not None and await self._position(partition) >= end:
                self._caught_up_s.setdefault(partition, now_s)
            else:
                self._caught_up_s.pop(partition, None)
        found = await consumer.highwaters(*(TP(self._topic, partition) for partition in mine)) if mine else {}
        self._ends = {tp.partition: end for tp, end in found.items()}
        return sorted(mine & self._caught_up_s.keys())

    async def _position(self, partition: int) -> int:
        """Up to where a partition was stepped. Where nothing is in hand, up to where it was fetched: what ends a
        transaction is an offset, too, and no record."""
        lane = self._lanes.get(partition)
        stepped = lane.position if lane is not None else -1
        consumer = self._app.consumer
        if stepped >= 0 and consumer.in_hand:
            return stepped
        fetched = await consumer.position(TP(self._topic, partition))
        return max(stepped, fetched if fetched is not None else -1)

    async def _append(self, runs: Runs) -> None:
        now_ms = self._publisher.log_now_ms()
        letters = []
        for key in runs.alarms.take(now_ms, limits.DEADLINES_MAX):
            state = runs.hot.get(key) or runs.wake(key)
            due = self._engine.next_deadline(state) if state is not None else None
            if due is None:
                continue
            if due.due_ms > now_ms:
                runs.alarms.again(key, due.due_ms)
                continue
            letters.append(OutgoingRecord("turns", key, encode(deadline_event(key.decode(), due))))
        if not letters:
            return
        try:
            await self._publisher.tell(runs.partition, letters)
        except KafkaError:
            for letter in letters:
                runs.alarms.again(letter.key or b"", now_ms)
            raise
        self.appended += len(letters)
        log.info("deadlines partition=%d appended=%d", runs.partition, len(letters))
