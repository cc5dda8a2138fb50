"""The retention of statuses: a worker removes old ones from the topic `runs`, which every listener reads at its start.

The topic is compacted, so it would keep the last status of every run that ever began. Now and then each worker reads
its partitions of it from their beginning to their end, and writes a tombstone for each run whose latest status is older
than its retention, by the broker's time, unless the table still holds the run. The table is checked, and the tombstone
joins the statuses that are about to be published, without a pause in between: a status of a run that begins again
always comes behind it.

A halt is kept as long as its status. Its stub in the table would outlive it, because a restart of the worker restores
the stub as if it were new. So a halted run without an event within its retention first leaves the table, and its
status goes when a later reading no longer finds it there. A crash in between leaves a status too many, never one too
few.

An expelled worker that has not noticed yet may write a tombstone behind a status of its successor. The successor finds
it: where the last record of a run in the table is a tombstone, the status is published again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamproc.kafka.reading import Extent, Record, TopicReader, open_consumer
from streamproc.kafka.session import run_in_own_task
from streamproc.model.formats import DAY_MS, HOUR_MS
from streamproc.settings import Settings
from streamproc.worker import limits
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.publishing import OutgoingRecord, Publisher
from streamproc.worker.runs_table import RunStore
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor

log = logging.getLogger("streamproc.worker")

NO_HALT: Final = msgspec.Raw(b"null")


class _Status(msgspec.Struct):
    status: str = ""
    halt: msgspec.Raw = NO_HALT


_decode = msgspec.json.Decoder(_Status).decode


class Cutoffs(NamedTuple):
    """The broker's time (ms) up to which a status may be forgotten, by what it says; -1: never."""

    finished_ms: int
    other_ms: int

    def of(self, value: bytes) -> int:
        """Return the one of a status. What cannot be read is kept as long as a halt."""
        try:
            status = _decode(value)
        except (ValueError, RecursionError):
            return self.other_ms
        finished = status.status == "finished" and bytes(status.halt) == b"null"
        return self.finished_ms if finished else self.other_ms


def cutoffs(settings: Settings, now_ms: int) -> Cutoffs:
    """Return the cutoffs at this time of the broker."""
    kept_ms = (settings.status_finished_hours * HOUR_MS, settings.status_days * DAY_MS)
    return Cutoffs(*(int(now_ms - one) if one else -1 for one in kept_ms))


class StatusReading:
    """One reading of a partition of `runs`, oldest record first: which statuses are old, and which are missing."""

    def __init__(self, old: Cutoffs, is_held: Callable[[bytes], bool]) -> None:
        self.records = 0
        self.due: dict[bytes, None] = {}
        """Runs whose latest status is older than its retention."""
        self.missing: dict[bytes, None] = {}
        """Runs of the table whose latest record is a tombstone."""
        self.go_on_at: int | None = None
        """The offset of the first old status for which there was no room; None: all were noted."""
        self._old = old
        self._latest_ms = max(old)
        self._is_held = is_held

    def read(self, records: Iterable[Record]) -> None:
        """Note what these records change."""
        due, missing = self.due, self.missing
        for record in records:
            self.records += 1
            key, value = record.key, record.value
            if key is None:
                continue
            if value is None:
                due.pop(key, None)
                if len(missing) < limits.STATUSES_DUE_MAX and self._is_held(key):
                    missing[key] = None
                continue
            if missing:
                missing.pop(key, None)
            if record.timestamp > self._latest_ms or record.timestamp > self._old.of(value):
                due.pop(key, None)
            elif key in due or len(due) < limits.STATUSES_DUE_MAX:
                due[key] = None
            elif self.go_on_at is None:
                self.go_on_at = record.offset


class StatusRetention:
    """Forgets old statuses of this worker's partitions."""

    def __init__(
        self,
        app: Any,
        settings: Settings,
        store: RunStore,
        pipelines: PartitionPipelines,
        processor: TurnProcessor,
        publisher: Publisher,
    ) -> None:
        self.forgotten = 0
        """Tombstones that were written."""
        self.restored = 0
        """Statuses that were published again."""
        self._app = app
        self._settings = settings
        self._topic = settings.topic("runs")
        self._store = store
        self._pipelines = pipelines
        self._processor = processor
        self._publisher = publisher
        self._mine: frozenset[int] = frozenset()
        self._go_on_at: dict[int, int] = {}
        self._checked_s = 0.0
        self._logged = ""

    # Ownership of partitions.

    def have(self, partitions: set[int]) -> None:
        """Take these partitions, whose runs are restored."""
        self._mine = frozenset(partitions)

    def leave(self) -> None:
        """Give up all partitions, because a rebalance has begun: no table is known to be complete until `have`."""
        self._mine = frozenset()
        self._go_on_at.clear()

    def _may_go_on(self, mine: frozenset[int], runs: Runs) -> bool:
        """Return whether the table of a partition is known to be complete, without a rebalance since it was taken.

        A process that was frozen for long may have lost its partitions without knowing it yet.
        """
        before_s, self._checked_s = self._checked_s, time.monotonic()
        return (
            self._mine is mine
            and self._store.partitions.get(runs.partition) is runs
            and not (self._app.rebalancing or self._app.in_recovery)
            and bool(self._app.consumer.flow_active)
            and self._checked_s - before_s < self._settings.session_timeout_s / 2
        )

    # Sweeps.

    async def run(self) -> None:
        """Sweep the partitions at intervals. Never returns."""
        pause_s = limits.STATUS_SWEEP_FIRST_S
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # workers start together
            pause_s = limits.STATUS_SWEEP_INTERVAL_S
            try:
                await run_in_own_task(self._sweep())
            except Exception as problem:  # noqa: BLE001 (turns are processed, whatever fails here)
                if str(problem) != self._logged:
                    self._logged = str(problem)
                    log.warning("old statuses stay on %s for now: %s", self._topic, self._logged)
            if self._go_on_at:
                pause_s = limits.STATUS_SWEEP_FIRST_S

    async def _sweep(self) -> None:
        mine = self._mine
        if not mine:
            return
        async with open_consumer(self._settings) as consumer:
            for partition in sorted(mine):
                runs = self._store.partitions.get(partition)
                self._checked_s = time.monotonic()
                if runs is None or not self._may_go_on(mine, runs):
                    return
                await self._sweep_partition(consumer, mine, runs)
        self._logged = ""

    async def _sweep_partition(self, consumer: AIOKafkaConsumer, mine: frozenset[int], runs: Runs) -> None:
        place = TopicPartition(self._topic, runs.partition)
        begin = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        begin = max(begin, self._go_on_at.pop(runs.partition, begin))
        old = cutoffs(self._settings, self._publisher.log_now_ms())
        found = StatusReading(old, lambda key: _is_held(runs, key))
        reader = TopicReader(consumer, self._topic, {runs.partition: Extent(begin, end)}, limits.STATUS_SWEEP_RECORDS)
        async for batch in reader.batches():
            if not self._may_go_on(mine, runs):
                return
            found.read(batch)
            await asyncio.sleep(limits.STATUS_SWEEP_PAUSE_S)
        if found.go_on_at is not None:
            self._go_on_at[runs.partition] = found.go_on_at
        before = self.forgotten, self.restored
        for keys, write in ((found.due, self._tombstone), (found.missing, self._status)):
            left = iter(keys)
            while piece := list(islice(left, limits.STATUS_SWEEP_WRITES)):
                if not (self._may_go_on(mine, runs) and await self._write(runs, write, piece, old)):
                    return
                await asyncio.sleep(limits.STATUS_SWEEP_PAUSE_S)
        forgotten, restored = self.forgotten - before[0], self.restored - before[1]
        if forgotten or restored:
            log.info(
                "statuses partition=%d read=%d forgotten=%d restored=%d",
                runs.partition, found.records, forgotten, restored,
            )  # fmt: skip

    async def _write(
        self,
        runs: Runs,
        write: Callable[[Runs, bytes, Cutoffs], OutgoingRecord | None],
        keys: list[bytes],
        old: Cutoffs,
    ) -> bool:
        """Publish what is to be written about these runs; return False if the partition was lost meanwhile.

        From here to where the records join the pipeline's there is no pause.
        """
        outgoing = [record for key in keys if (record := write(runs, key, old)) is not None]
        if outgoing and not await self._pipelines[runs.partition].publish_besides(outgoing):
            return False
        forgotten = sum(record.value is None for record in outgoing)
        self.forgotten += forgotten
        self.restored += len(outgoing) - forgotten
        return True

    def _tombstone(self, runs: Runs, key: bytes, old: Cutoffs) -> OutgoingRecord | None:
        """Return the tombstone of a run; None if the table holds it. A halted one that is idle leaves the table."""
        if not _is_held(runs, key):
            return OutgoingRecord("runs", key, None)
        state = runs.state(key)
        if state is not None and state.halted >= 0 and state.at_ms <= old.other_ms and key not in runs.dirty:
            runs.overdue.add(key)
            self._pipelines[runs.partition].store_soon()
        return None

    def _status(self, runs: Runs, key: bytes, _old: Cutoffs) -> OutgoingRecord | None:
        """Return the status of a run; None if the table does not hold it any more."""
        return self._processor.status_of(runs, key) if _is_held(runs, key) else None


def _is_held(runs: Runs, key: bytes) -> bool:
    return key in runs.active or key in runs
