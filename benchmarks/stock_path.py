"""The stock path: the worker's agents on topics, event by event, through Faust's conductor and streams.

`python -m benchmarks.stock_path` takes the options of `streamproc worker`. It is slower by an order of magnitude, and
exists for comparison: tests run on it as well, so the batch path decides what stock Faust agents decide. Fetching,
recovery and commits are those of the batch path. Faust's own lose events when one rebalance follows another: Faust
takes records fetched before a rebalance for those read after it, clears its queue once more after reading has resumed,
and commits over both gaps. So a slice is put into Faust's queue record by record, and the next one follows once the
agent has processed all of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, cast

from faust.types import TP
from faust.types.tuples import ConsumerMessage

from streamproc.worker import app as workers
from streamproc.worker.composition import Worker
from streamproc.worker.consumer import BatchConsumer, BatchTransport
from streamproc.worker.records import PlacedRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.worker.partition_pipeline import PartitionPipelines
    from streamproc.worker.records import Fetched


class StockConsumer(BatchConsumer):
    """The consumer of the batch path, passing single events to the agents."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._slice = (TP("", 0), 0)  # of the current slice: partition, generation of the group
        self._expected: deque[int] = deque()  # its offsets that no agent has processed yet
        self._processed = asyncio.Event()

    async def _step(self, tp: TP, records: Sequence[Fetched], asked: int) -> int:
        await self._channels_settled(asked)
        if not await self._pipelines[tp.topic][tp.partition].room() or not self._may_go_on(asked):
            return 0
        self.waiting_for = tp
        try:
            return len(records) if await self._stepped(tp, records, asked) else 0
        finally:
            self.waiting_for = None

    async def _stepped(self, tp: TP, records: Sequence[Fetched], asked: int) -> bool:
        self._slice, self._expected = (tp, asked), deque(record.offset for record in records)
        self._processed.clear()
        for record in records:
            await self.wait_first(self.callback(_message(tp, record, asked)), self.suspend_flow.wait())
            if not self._may_go_on(asked):
                return False
        await self.wait_first(self._processed.wait(), self.suspend_flow.wait())
        return not self._expected

    def is_next(self, message: Any) -> bool:
        """Return whether an agent may process this. Events from before a rebalance or after a gap are read again."""
        if (message.tp, message.generation_id) != self._slice or not self._may_go_on(message.generation_id):
            return False
        return bool(self._expected) and self._expected[0] == message.offset

    def has_stepped(self) -> None:
        """Note that the expected event is processed."""
        self._expected.popleft()
        if not self._expected:
            self._processed.set()


class StockTransport(BatchTransport):
    """The transport of the stock path."""

    Consumer: ClassVar[type[BatchConsumer]] = StockConsumer


class StockWorker(Worker):
    """A worker whose agents are those of `worker.agents`, reading the topics of turns and spend."""

    path = "stock"
    transport = StockTransport

    def _add_event_agents(self, turns: Any, spend: Any) -> None:
        @self.app.agent(turns, name="watch_turns")
        async def watch_turns(stream: Any) -> None:
            """Step turns through the engine: decisions to the control topic, states to the table `runs`."""
            async for event in stream.noack().events():
                _apply(self.app, event.message, self.pipelines)

        @self.app.agent(spend, name="book_spend")
        async def book_spend(stream: Any) -> None:
            """Book statements of spend to the table `accounts`."""
            async for event in stream.noack().events():
                _apply(self.app, event.message, self.account_pipelines)


def use_stock_agents() -> None:
    """Make the workers that this process runs from now on stock ones."""
    workers.Worker = StockWorker  # type: ignore[misc]


def _apply(app: Any, message: Any, pipelines: PartitionPipelines) -> None:
    consumer = cast("StockConsumer", app.consumer)
    if consumer.is_next(message):
        pipelines.accept(message.partition, (_record(message),))
        consumer.has_stepped()


def _message(tp: TP, record: Any, generation: int) -> ConsumerMessage:
    """Return a record as a Faust message."""
    return ConsumerMessage(
        tp.topic, tp.partition, record.offset, record.timestamp / 1000, record.timestamp_type, record.headers,
        record.key, record.value, record.checksum, tp=TP(tp.topic, tp.partition), generation_id=generation,
    )  # fmt: skip


def _record(message: Any) -> PlacedRecord:
    """Return a Faust message as a record for the processors."""
    return PlacedRecord(
        message.topic, message.partition, message.offset, round(message.timestamp * 1000), message.key, message.value,
        message.timestamp_type, message.headers or (),
    )  # fmt: skip


if __name__ == "__main__":
    from streamproc import cli

    use_stock_agents()
    sys.argv[1:1] = ["worker"]
    cli.main()
