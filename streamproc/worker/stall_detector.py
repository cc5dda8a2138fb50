"""Does the worker get anywhere? If not, and it is not the broker's fault, it ends: a new process is what helps.

Clients of Kafka can hang: a commit that silently stops, a fetch that never returns, a rebalance without end. Nothing
raises then, and the process looks alive while its partitions stand still. So, now and then, each partition in which
something is to be done is looked at: has its committed offset moved? And in a rebalance or recovery: has anything?

Before it ends the worker asks the broker by connections of their own. While that does not answer, everybody waits.
Time is counted in looks: a process that was frozen has not been stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from faust.exceptions import ConsumerNotStarted
from faust.types import TP

from streamproc.kafka.options import connection_options
from streamproc.worker.limits import BROKER_PROBE_S, COMMIT_STUCK_S, PROGRESS_LOOK_S, REBALANCE_STUCK_S
from streamproc.worker.tasks import dump_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.settings import Settings
    from streamproc.worker.partition_pipeline import PartitionPipelines

log = logging.getLogger(__name__)

MOVE = "the rebalance or recovery"
"""What is looked at while partitions are given out or their states are read."""


class WorkerStalled(Exception):
    """The worker does not get anywhere, and the broker is there."""


@dataclass(slots=True)
class StallState:
    """Something that has not moved."""

    where: Any  # how far it was
    since: float  # by the clock on the wall
    looks: int = 0
    behind: str = ""  # what was still to be done, for people

    def __str__(self) -> str:
        return f"since {time.strftime('%H:%M:%S', time.localtime(self.since))} ({self.behind})"


class StallDetector:
    """Looks at a worker: its app, and the lanes of each topic that it works through."""

    def __init__(
        self, app: Any, lanes: Mapping[str, PartitionPipelines], settings: Settings, topics: list[str]
    ) -> None:
        self._app = app
        self._lanes = lanes
        self._settings = settings
        self._topics = topics  # those that a partition of ours needs, besides
        self._still: dict[TP | str, StallState] = {}

    async def run(self) -> None:
        """For ever: look. Raises `WorkerStalled`."""
        while True:
            await asyncio.sleep(PROGRESS_LOOK_S)
            await self._look()

    async def _look(self) -> None:
        seen = await self._seen()
        now = time.time()
        before, self._still = self._still, {}
        for subject, (where, behind) in seen.items():
            still = before.get(subject)
            if still is None or still.where != where:
                still = StallState(where, now)
            else:
                still.looks += 1
            still.behind = behind
            self._still[subject] = still
        stuck = [subject for subject, still in self._still.items() if still.looks * PROGRESS_LOOK_S >= _limit(subject)]
        if not stuck:
            return
        what = "; ".join(f"{_name(subject)} stands still {self._still[subject]}" for subject in stuck)
        if await self._broker_answers():
            dump_tasks()
            raise WorkerStalled(what)
        self._still.clear()
        log.warning("%s: the broker does not answer, waiting for it", what)

    async def _seen(self) -> dict[TP | str, tuple[Any, str]]:
        """What is to be done: how far it is, and what is missing in words."""
        app, consumer = self._app, self._app.consumer
        if app.rebalancing or app.in_recovery or not (consumer.flow_active and app.consumer_generation_id):
            read = sum(app.tables.recovery.active_offsets.values())
            where = (app.consumer_generation_id, app.rebalancing, app.in_recovery, read)
            return {MOVE: (where, f"generation {app.consumer_generation_id}")}
        mine = [tp for tp in consumer.assignment() if tp.topic in self._lanes]
        places = await self._places(mine)
        seen: dict[TP | str, tuple[Any, str]] = {}
        for tp in mine:
            lane = self._lanes[tp.topic].get(tp.partition)
            stepped, committed = lane.position if lane is not None else -1, consumer._committed_offset.get(tp) or 0
            fetched, end = places.get(tp, (-1, -1))
            waits = consumer.waiting_for == tp
            if stepped > committed or fetched < end or waits or not places:
                ends = f"the log ends at {end}" if places else "the client does not answer"
                agent = ", its agent has not answered" if waits else ""
                seen[tp] = committed, f"committed {committed}, stepped {max(stepped, 0)}, {ends}{agent}"
        return seen

    async def _places(self, mine: list[TP]) -> dict[TP, tuple[int, int]]:
        """Up to where each partition was fetched, and where it ends; nothing where the consumer does not answer."""
        consumer = self._app.consumer
        try:
            async with asyncio.timeout(BROKER_PROBE_S):
                ends = await consumer.highwaters(*mine) if mine else {}
                return {TP(*tp): (await consumer.position(TP(*tp)) or 0, end) for tp, end in ends.items()}
        except (KafkaError, OSError, TimeoutError, ConsumerNotStarted):
            return {}

    async def _broker_answers(self) -> bool:
        """Whether everything answers that a commit needs: the leaders of our partitions, and the group's coordinator.

        By clients that nobody has used yet: those of the worker may be what hangs.
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
