"""Heartbeats of a worker: every 2 s a record of the workers topic that says what it decides on, and how far it is.

When it starts, a worker reads the topic: it takes over what a worker of its name had last, and removes others that were
silent for a day.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokafka.errors import KafkaError

from streamproc.errors import StreamprocError
from streamproc.fleet.record_signing import LogPlace, record_signer
from streamproc.fleet.workers import FORGET_AFTER_MS, HEARTBEAT_EVERY_S, ROLE, Workers
from streamproc.kafka.reading import LOG_APPEND_TIME, open_topic
from streamproc.model.heartbeat import LAGGING_MAX, NAME_MAX, TEXT_MAX, Heartbeat, LaggingPartition, encode_heartbeat
from streamproc.worker.limits import HEARTBEAT_LAG_MS, HEARTBEAT_SWEEP_S, SIDE_LEAVE_S
from streamproc.worker.side_topic import SideTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka import AIOKafkaProducer

    from streamproc.kafka.session import Backoff
    from streamproc.model.heartbeat import WorkerState
    from streamproc.model.provider_state import ProviderState
    from streamproc.policy import Policy
    from streamproc.settings import Settings
    from streamproc.worker.counts import WorkerCounts
    from streamproc.worker.partition_lag import PartitionLag

log = logging.getLogger("streamproc.worker")

STEADY_MS: Final = 1_000  # our estimate of the broker's clock varies by some ms: the time of the start does not
CLOCK_MIN_MS: Final = 1_500_000_000_000  # earlier is no clock: the embedded broker says 1234 of every record
NOWHERE: Final = -1  # a heartbeat follows from no event of the turns topic


class _Share(NamedTuple):
    """The partitions that a worker decided on, the next offset in each, and when it decided on them last (ms)."""

    partitions: list[int]
    positions: list[int]
    deciding_at: int


class Heartbeats:
    """Publishes the heartbeats of this worker."""

    def __init__(
        self, settings: Settings, policy: Policy, version: str, count: int, lag: PartitionLag, counts: WorkerCounts
    ) -> None:
        self.name = worker_name(settings)
        self._settings = settings
        self._side = SideTopic(settings, ROLE, "page, doctor and guards cannot see it", linger_ms=0)
        self._topic = self._side.name
        self._lag = lag
        self.providers: Callable[[], list[ProviderState]] = list
        """Returns the breakers that hold calls back. (The worker sets this.)"""
        self._counts = counts
        self._signer = record_signer(settings)
        self._started_s, self._started_ms = time.time(), 0
        self._share = _Share([], [], 0)
        self._decides = False
        self._ended = asyncio.Event()
        self._is_clean = False
        self._ahead_ms = 0  # of the broker's clock, compared with ours
        self._last_ms = 0
        self._swept_s = float("-inf")
        self._constant: dict[str, Any] = {
            "w": 1, "worker": self.name, "version": version[:TEXT_MAX], "policy": policy.name[:TEXT_MAX],
            "policy_hash": policy.hash, "evidence_excerpts": policy.evidence_excerpts, "shadow": settings.shadow,
            "of": count,
        }  # fmt: skip

    async def run(self) -> None:
        """Publish a heartbeat every 2 s, as far as broker, topic and rights allow, until `stop`."""
        try:
            await self._side.run(self._beat)
        finally:
            self._ended.set()

    async def stop(self, *, clean: bool) -> None:
        """End `run`. If this worker was asked to stop (`clean`), the last heartbeat says so."""
        self._is_clean = clean
        self._side.stopping.set()
        if clean:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SIDE_LEAVE_S):
                    await self._ended.wait()

    async def _beat(self, producer: AIOKafkaProducer, backoff: Backoff) -> None:
        due_s = time.monotonic()
        while not self._side.stopping.is_set():
            if time.monotonic() - self._swept_s > HEARTBEAT_SWEEP_S:
                await self._sweep(producer)
            await self._send(producer, "deciding" if self._lag.is_current else "restoring")
            backoff.reset()
            self._side.works()
            due_s = max(due_s + HEARTBEAT_EVERY_S, time.monotonic())
            await self._side.pause(due_s - time.monotonic())
        if self._is_clean:
            await self._send(producer, "stopped")

    # What a heartbeat says.

    def _heartbeat(self, state: WorkerState) -> Heartbeat:
        at_ms = self._last_ms = max(self._now_ms(), self._last_ms + 1)
        self._decides = state == "deciding" or (state == "stopped" and self._decides)
        if self._decides:
            positions = dict(self._lag.positions())
            self._share = _Share(list(positions), list(positions.values()), at_ms if positions else 0)
        started_ms = self._log_ms(self._started_s)
        if abs(started_ms - self._started_ms) > STEADY_MS:
            self._started_ms = started_ms
        behind = [
            LaggingPartition(partition=partition, records=records, delay_ms=round(seconds * 1000))
            for partition, records, seconds in self._lag.lags()
            if state == "deciding" and seconds * 1000 >= HEARTBEAT_LAG_MS
        ]
        return Heartbeat(
            state=state,
            at=at_ms,
            started=self._started_ms,
            decided_at=self._log_ms(self._counts.decided_s) if self._counts.decided_s else 0,
            deciding_at=self._share.deciding_at,
            partitions=self._share.partitions,
            positions=self._share.positions,
            lagging=sorted(behind, key=lambda lag: -lag.delay_ms)[:LAGGING_MAX],
            providers=self.providers() if state == "deciding" else [],
            **self._constant,
        )

    def _now_ms(self) -> int:
        return self._log_ms(time.time())

    def _log_ms(self, here_s: float) -> int:
        return max(0, round(here_s * 1000) + self._ahead_ms)

    # Records.

    async def _send(self, producer: AIOKafkaProducer, state: WorkerState) -> None:
        heartbeat = self._heartbeat(state)
        await self._put(producer, self.name.encode(), encode_heartbeat(heartbeat), heartbeat.at)

    async def _put(self, producer: AIOKafkaProducer, key: bytes, value: bytes | None, at_ms: int) -> None:
        headers = (
            [self._signer.sign(ROLE, key, value, LogPlace(NOWHERE, NOWHERE, at_ms))] if self._signer.required else []
        )
        metadata = await producer.send_and_wait(self._topic, value, key=key, headers=headers)
        if metadata.timestamp_type == LOG_APPEND_TIME and metadata.timestamp > CLOCK_MIN_MS:
            self._ahead_ms = metadata.timestamp - round(time.time() * 1000)

    async def _sweep(self, producer: AIOKafkaProducer) -> None:
        """Read the topic: take over what a worker of this name had, and remove keys without a record for a day."""
        self._swept_s = time.monotonic()
        known = Workers(self._signer, self._settings.shadow)
        last_ms: dict[bytes, int] = {}
        newest_ms = 0
        try:
            async with open_topic(self._settings, ROLE) as reader:
                async for batch in reader.batches():
                    for record in batch:
                        known.apply(record, 0.0)
                        newest_ms = max(newest_ms, record.timestamp)
                        last_ms.pop(record.key or b"", None)
                        if record.value is not None and record.key is not None:
                            last_ms[record.key] = record.timestamp
        except (StreamprocError, KafkaError, OSError) as problem:
            log.warning("%s cannot be read: %s", self._topic, problem)
            return
        for row in known.rows():
            if row.heartbeat.worker == self.name and not self._share.partitions:
                self._share = _Share(row.heartbeat.partitions, row.heartbeat.positions, row.heartbeat.deciding_at)
        before_ms = max(self._now_ms(), newest_ms) - FORGET_AFTER_MS
        for key in [key for key, at_ms in last_ms.items() if at_ms < before_ms and key != self.name.encode()]:
            await self._put(producer, key, None, self._now_ms())


def worker_name(settings: Settings) -> str:
    """Return the name under which this process is seen: its instance, or its machine and process."""
    return (settings.instance or f"{socket.gethostname()}-{os.getpid()}")[:NAME_MAX]
