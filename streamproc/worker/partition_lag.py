"""How far each partition is behind its log, for heartbeats, metrics and readiness: the broker is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP

from streamproc.worker.limits import BROKER_PROBE_S, LAG_TICK_S
from streamproc.worker.partition_pipeline import PartitionPipelines


async def position_of(consumer: Any, pipelines: PartitionPipelines, tp: TP) -> int:
    """Return the offset up to which a partition is processed; if none of it is in hand, up to which it is fetched.

    The marker that ends a transaction has an offset and is not a record.
    """
    pipeline = pipelines.get(tp.partition)
    stepped = pipeline.position if pipeline is not None else -1
    if tp in consumer.in_hand:
        return stepped
    fetched = await consumer.position(tp)
    return max(stepped, fetched if fetched is not None else -1)


@dataclass(slots=True)
class _Seen:
    """A partition as it was seen last. Times are in ms, by the broker's clock."""

    first_end: int  # of the log, when the partition came to this worker
    end: int
    position: int
    first_ms: int  # when this worker saw it first
    done_ms: int = 0  # when all of it was processed last: what waits now is not older
    reached: bool = False  # the first end


class PartitionLag:
    """The lag of this worker's partitions of the turns topic."""

    def __init__(
        self, app: Any, topic: str, pipelines: PartitionPipelines, log_now_ms: Callable[[], int], *, live: bool
    ) -> None:
        self._app = app
        self._topic = topic
        self._pipelines = pipelines
        self._log_now_ms = log_now_ms
        self._live = live  # log times are those of the broker
        self._seen: dict[int, _Seen] = {}
        self._generation = 0

    async def run(self) -> None:
        """Look at intervals. Never returns."""
        while True:
            try:
                async with asyncio.timeout(BROKER_PROBE_S):
                    await self._look()
            except (KafkaError, OSError, TimeoutError, ConsumerNotStarted):
                pass  # what was seen last stays: without a broker, nothing is appended
            await asyncio.sleep(LAG_TICK_S)

    async def _look(self) -> None:
        consumer, generation = self._app.consumer, self._app.consumer_generation_id
        if not self.is_settled:
            return
        now_ms = self._log_now_ms()
        mine = [tp for tp in consumer.assignment() if tp.topic == self._topic]
        ends = await consumer.highwaters(*mine) if mine else {}
        found: dict[int, _Seen] = {}
        for tp, end in ends.items():
            position = await position_of(consumer, self._pipelines, TP(*tp))
            seen = self._seen.get(tp.partition) or _Seen(end, end, position, now_ms)
            seen.end, seen.position = end, position
            seen.reached = seen.reached or position >= seen.first_end
            if position >= end:
                seen.done_ms = now_ms
            found[tp.partition] = seen
        if generation == self._app.consumer_generation_id:
            self._seen, self._generation = found, generation

    @property
    def is_settled(self) -> bool:
        """Whether this worker is a member of its group, knows its partitions, and has their states."""
        app = self._app
        if app.rebalancing or app.in_recovery or not app.consumer_generation_id:
            return False
        return bool(app.consumer.flow_active)

    @property
    def is_current(self) -> bool:
        """Whether it is settled, and its partitions have been looked at since."""
        return self.is_settled and self._generation == self._app.consumer_generation_id

    def positions(self) -> Iterator[tuple[int, int]]:
        """Yield each partition with the offset up to which it is processed."""
        for partition, seen in sorted(self._seen.items()):
            yield partition, max(0, self._position(partition, seen))

    def missing(self) -> Iterator[str]:
        """Yield what is missing to be ready, in words: membership, states, and what was in the log before."""
        if not self.is_current:
            yield "joining the group, or restoring states"
            return
        for partition, seen in sorted(self._seen.items()):
            left = seen.first_end - self._position(partition, seen)
            if not seen.reached and left > 0:
                yield f"partition {partition}: {left} records to catch up with"

    def lags(self) -> Iterator[tuple[int, int, float]]:
        """Yield each partition with the records that are not processed, and the age of the oldest, at most, in s."""
        now_ms = self._log_now_ms()
        for partition, seen in sorted(self._seen.items()):
            records = max(0, seen.end - self._position(partition, seen))
            pipeline = self._pipelines.get(partition)
            stepped_ms = pipeline.stepped_ms if pipeline is not None and self._live else 0
            since_ms = max(seen.done_ms, stepped_ms) or seen.first_ms
            yield partition, records, max(0, now_ms - since_ms) / 1000 if records else 0.0

    def _position(self, partition: int, seen: _Seen) -> int:
        pipeline = self._pipelines.get(partition)
        return max(seen.position, pipeline.position if pipeline is not None else -1)
