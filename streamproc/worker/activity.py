"""The current statuses of working runs, on the topic `activity`: what people and planners see between two decisions.

A status on `runs` is published with a decision; guards read every one of them. So turns, cost, badge and counters of a
run that works undisturbed would be as old as its last decision. Here each run that has changed is published once in
eight seconds at most, on a topic that no guard reads. What it says never counts against `runs`: it is used only where
it follows from a later event of a run that is still running.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from streamproc.core.status import encode_status
from streamproc.fleet.record_signing import LogPlace, record_signer
from streamproc.worker.limits import ACTIVITY_BATCH_BYTES, ACTIVITY_CHUNK, ACTIVITY_INTERVAL_S
from streamproc.worker.publishing import COMPRESSION, NO_HEADERS, delivered, post
from streamproc.worker.side_topic import SideTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiokafka import AIOKafkaProducer

    from streamproc.core.engine import Engine
    from streamproc.kafka.session import Backoff
    from streamproc.settings import Settings
    from streamproc.worker.runs_table import RunStore
    from streamproc.worker.tables import Runs

ROLE: Final = "activity"


class Activity:
    """Publishes the current statuses of this worker's runs."""

    def __init__(
        self, app: Any, settings: Settings, store: RunStore, engine: Engine, now_ms: Callable[[], int]
    ) -> None:
        self.published = 0
        """Statuses that the broker has stored."""
        self._side = SideTopic(
            settings,
            ROLE,
            "lists show its running runs as of their last decision",
            compression_type=COMPRESSION,
            max_batch_size=ACTIVITY_BATCH_BYTES,
        )
        self._app = app
        self._store = store
        self._engine = engine
        self._now_ms = now_ms
        self._signer = record_signer(settings)

    async def run(self) -> None:
        """Publish what has changed, at intervals. Never returns."""
        await self._side.run(self._publish)

    async def _publish(self, producer: AIOKafkaProducer, backoff: Backoff) -> None:
        """Go round the partitions, one after another, so that the load is even."""
        due_s = time.monotonic()
        while True:
            mine = sorted(self._store.partitions)
            for number in mine:
                due_s = max(due_s + ACTIVITY_INTERVAL_S / len(mine), time.monotonic())
                if (runs := self._store.partitions.get(number)) is not None:
                    await self._publish_partition(producer, runs, due_s)
                    backoff.reset()
                await asyncio.sleep(due_s - time.monotonic())
            if not mine:
                await asyncio.sleep(ACTIVITY_INTERVAL_S)
                due_s = time.monotonic()

    async def _publish_partition(self, producer: AIOKafkaProducer, runs: Runs, due_s: float) -> None:
        """Make the statuses a few at a time, so that no decision waits for them, and send them together."""
        changed = list(runs.take_active())
        records: list[Any] = []
        for first in range(0, len(changed), ACTIVITY_CHUNK):
            if self._store.partitions.get(runs.partition) is not runs or self._app.rebalancing:
                return  # the next owner of the partition publishes what changes there
            records += self._records(runs, changed[first : first + ACTIVITY_CHUNK])
            chunks_left = (len(changed) - first) / ACTIVITY_CHUNK
            await asyncio.sleep(max(0.0, due_s - time.monotonic()) / (1 + chunks_left) / 4)
        if records:
            await delivered(await post(producer, self._side.name, runs.partition, records))
            self.published += len(records)
            self._side.works()

    def _records(self, runs: Runs, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, Any, None]]:
        records: list[tuple[bytes, bytes, Any, None]] = []
        for key in keys:
            state = runs.peek(key)
            if state is None or state.halted >= 0 or state.finished:
                continue  # its status on `runs` says all
            value, offset = encode_status(self._engine.status(state, key.decode(), None)), state.offset
            headers = NO_HEADERS
            if self._signer.required:
                headers = [self._signer.sign(ROLE, key, value, LogPlace(runs.partition, offset, self._now_ms()))]
            records.append((key, value, headers, None))
        return records
