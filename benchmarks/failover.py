"""The time from the kill -9 of a worker to the first decision on later turns, in the slowest partition.

Measured with a second worker running, and with a worker that restarts at once under the same name (static membership),
which does not wait for the session to time out.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer

from benchmarks.kafka_log import consumer, own_topics
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, Row
from benchmarks.worker_process import Process, worker
from streamproc import TurnPublisher
from streamproc.kafka import topics
from streamproc.settings import Settings

BEYOND_SESSION_S: Final = 2.0
PAUSE_S: Final = 0.02  # between two stuck runs: each partition gets one every 80 ms
TIMEOUT_S: Final = 90.0


async def rows(_sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure both takeovers."""
    session_s = settings.session_timeout_s
    aim = Aim("≤", session_s + BEYOND_SESSION_S)
    async with own_topics(settings):
        found = [await _takeover(settings, standby=True), await _takeover(settings, standby=False)]
    cases = ("a second worker is running", "restarted under the same name")
    return [
        Row(
            f"failover.{name}", f"kill -9 → first decision of the successor, {case}; session timeout {session_s:g} s",
            seconds, "s", aim=aim,
        )
        for name, case, seconds in zip(("standby", "restart"), cases, found, strict=True)
    ]  # fmt: skip


class Stuck:
    """Publishes stuck runs one after the other, and notes when each partition first decides on a new one."""

    def __init__(self, name: str, partitions: int) -> None:
        self.published = 0
        self._name = name.encode()
        self._partitions = partitions
        self._first: dict[int, float] = {}
        self._since = 0

    async def publish(self, turns: TurnPublisher) -> None:
        """Publish until cancelled."""
        while True:
            run_id = f"{self._name.decode()}-{self.published}"
            for _ in range(3):
                await turns.turn(run_id=run_id, node="coder", output="I will try again.")
            self.published += 1
            await asyncio.sleep(PAUSE_S)

    async def read(self, reader: AIOKafkaConsumer) -> None:
        """Read decisions until cancelled."""
        async for record in reader:
            name, _, number = (record.key or b"").rpartition(b"-")
            if name == self._name and int(number) >= self._since:
                self._first.setdefault(record.partition, time.monotonic())

    async def decided_everywhere(self) -> float:
        """Return when the last partition has decided on a run that is published from now on."""
        self._since = self.published + 1
        self._first.clear()
        async with asyncio.timeout(TIMEOUT_S):
            while len(self._first) < self._partitions:
                await asyncio.sleep(0.01)
        return max(self._first.values())


async def _takeover(settings: Settings, *, standby: bool) -> float:
    """Return the seconds from the kill to the first decision on a later run, in the last partition."""
    name = "standby" if standby else "restart"
    first = settings.model_copy(update={"instance": f"{name}-0", "group": f"{settings.topic_prefix}-{name}"})
    await topics.apply(first)
    with worker(first) as killed:
        async with _stuck(first, name) as stuck:
            await stuck.decided_everywhere()
            if not standby:
                began = killed.kill()
                with worker(first):
                    return await stuck.decided_everywhere() - began
            with worker(first.model_copy(update={"instance": f"{name}-1"})) as other:
                await _has_partitions(other)
                await stuck.decided_everywhere()
                began = killed.kill()
                return await stuck.decided_everywhere() - began


async def _has_partitions(process: Process) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not re.search(r"ready partitions=\d", process.stderr()):
            process.check()
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _stuck(settings: Settings, name: str) -> AsyncIterator[Stuck]:
    """Publish stuck runs and read their decisions."""
    stuck = Stuck(name, settings.partitions)
    async with consumer(settings, settings.topic("control")) as reader, TurnPublisher(settings=settings) as turns:
        await reader.seek_to_end()
        tasks = [asyncio.ensure_future(stuck.read(reader)), asyncio.ensure_future(stuck.publish(turns))]
        try:
            yield stuck
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
