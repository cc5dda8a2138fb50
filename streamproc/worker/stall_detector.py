"""The stall detector: ends a worker that makes no progress although the broker answers. A new process helps then.

Kafka clients can hang: a commit that silently stops, a fetch that never returns, a rebalance without end. So can an
agent. Nothing raises, and the process looks alive while its partitions do not move. So the detector checks each
partition with work to do at intervals: has its committed offset moved? During a rebalance or recovery: has anything?

Before it ends the worker, the detector probes the broker over new connections. If the broker does not answer, the
worker waits. Time is counted in checks, so a process that was frozen is not stalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from faust.exceptions import ConsumerNotStarted
from faust.types import TP

from streamproc.kafka.options import connection_options
from streamproc.settings import Settings
from streamproc.worker.limits import BROKER_PROBE_S, COMMIT_STUCK_S, REBALANCE_STUCK_S, STALL_CHECK_S
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.tasks import dump_tasks

log = logging.getLogger(__name__)

MOVE = "the rebalance or recovery"
"""The subject of the checks while partitions are assigned or their states are restored."""


class WorkerStalled(Exception):
    """The worker makes no progress, and the broker answers."""


@dataclass(slots=True)
class StallState:
    """A subject that has not moved."""

    progress: Any  # when it was checked first
    since: float  # wall-clock time
    checks: int = 0
    details: str = ""  # the remaining work, for the log

    def __str__(self) -> str:
        return f"since {time.strftime('%H:%M:%S', time.localtime(self.since))} ({self.details})"


class StallDetector:
    """Checks a worker: its app, and the pipelines of its topics."""

    def __init__(
        self, app: Any, pipelines: Mapping[str, PartitionPipelines], settings: Settings, topics: list[str]
    ) -> None:
        self._app = app
        self._pipelines = pipelines
        self._settings = settings
        self._topics = topics  # all topics that the worker reads or writes
        self._states: dict[TP | str, StallState] = {}

    async def run(self) -> None:
        """Check at intervals. Raises `WorkerStalled`, or what ended the coordination with the group; never returns."""
        while True:
            await asyncio.sleep(STALL_CHECK_S)
            self._app.consumer.kafka.raise_coordination_error()
            await self._check()

    async def _check(self) -> None:
        seen = await self._seen()
        now = time.time()
        before, self._states = self._states, {}
        for subject, (progress, details) in seen.items():
            state = before.get(subject)
            if state is None or state.progress != progress:
                state = StallState(progress, now)
            else:
                state.checks += 1
            state.details = details
            self._states[subject] = state
        stuck = [subject for subject, state in self._states.items() if state.checks * STALL_CHECK_S >= _limit(subject)]
        if not stuck:
            return
        what = "; ".join(f"{_name(subject)} has not moved {self._states[subject]}" for subject in stuck)
        if await self._broker_answers():
            dump_tasks()
            raise WorkerStalled(what)
        self._states.clear()
        log.warning("%s: the broker does not answer; waiting for it", what)

    async def _seen(self) -> dict[TP | str, tuple[Any, str]]:
        """Return the subjects with work to do: the progress of each, and its remaining work in words."""
        app, consumer = self._app, self._app.consumer
        if app.rebalancing or app.in_recovery or not (consumer.flow_active and app.consumer_generation_id):
            read = sum(app.tables.recovery.active_offsets.values())
            progress = (app.consumer_generation_id, app.rebalancing, app.in_recovery, read)
            return {MOVE: (progress, f"generation {app.consumer_generation_id}")}
        mine = [tp for tp in consumer.assignment() if tp.topic in self._pipelines]
        ends = await self._fetched_and_ends(mine)
        seen: dict[TP | str, tuple[Any, str]] = {}
        for tp in mine:
            pipeline = self._pipelines[tp.topic].get(tp.partition)
            stepped, committed = (
                pipeline.position if pipeline is not None else -1,
                consumer.committed_offsets.get(tp) or 0,
            )
            fetched, end = ends.get(tp, (-1, -1))
            waits = consumer.waiting_for == tp
            if stepped > committed or fetched < end or waits or not ends:
                log_end = f"the log ends at {end}" if ends else "the client does not answer"
                agent = ", its agent has not answered" if waits else ""
                seen[tp] = committed, f"committed {committed}, stepped {max(stepped, 0)}, {log_end}{agent}"
        return seen

    async def _fetched_and_ends(self, mine: list[TP]) -> dict[TP, tuple[int, int]]:
        """Return the fetched offset and the end of each partition; nothing if the consumer does not answer."""
        consumer = self._app.consumer
        try:
            async with asyncio.timeout(BROKER_PROBE_S):
                ends = await consumer.highwaters(*mine) if mine else {}
                return {TP(*tp): (await consumer.position(TP(*tp)) or 0, end) for tp, end in ends.items()}
        except (KafkaError, OSError, TimeoutError, ConsumerNotStarted):
            return {}

    async def _broker_answers(self) -> bool:
        """Return whether the leaders of our partitions and the group's coordinator answer, as a commit needs.

        The probe uses new clients, because those of the worker may be what hangs.
        """
        mine: set[int] = set()
        with contextlib.suppress(ConsumerNotStarted):
            mine = {tp.partition for tp in self._app.consumer.assignment()}
        places = [TopicPartition(topic, number) for topic in self._topics for number in mine]
        consumer = AIOKafkaConsumer(**connection_options(self._settings))
        admin = AIOKafkaAdminClient(**connection_options(self._settings))
        try:
            async with asyncio.timeout(BROKER_PROBE_S):
                await consumer.start()
                await consumer.end_offsets(places)
                await admin.start()
                await admin.list_consumer_group_offsets(self._settings.worker_group)
        except (KafkaError, OSError, TimeoutError):
            return False
        finally:
            await asyncio.gather(consumer.stop(), admin.close(), return_exceptions=True)
        return True


def _limit(subject: TP | str) -> float:
    return REBALANCE_STUCK_S if subject == MOVE else COMMIT_STUCK_S


def _name(subject: TP | str) -> str:
    return subject if isinstance(subject, str) else f"{subject.topic}[{subject.partition}]"
