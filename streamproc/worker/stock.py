"""The same work on a plain Faust agent: event by event, through Faust's own consumer, queue and stream.

Slower by an order of magnitude; here to be compared with, and for whoever distrusts the seam. An event is acknowledged
when what it led to is told and stored, in the order of the log, so that a crash repeats and never skips.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from faust.transport.drivers import aiokafka as driver

from streamproc.worker.chunks import QuietProducer, SeekingConsumer
from streamproc.worker.records import Record

if TYPE_CHECKING:
    import faust

    from streamproc.worker.lanes import Lanes


class StockTransport(driver.Transport):
    """Faust's transport; topics are created by `streamproc topics apply` alone."""

    Consumer = SeekingConsumer
    Producer = QuietProducer


class Acknowledgements:
    """Events that were stepped, until they are stored."""

    def __init__(self) -> None:
        self._waiting: defaultdict[int, deque[Any]] = defaultdict(deque)

    def expect(self, event: Any) -> None:
        """Acknowledge this event once it is stored."""
        self._waiting[event.message.partition].append(event)

    def stored(self, partition: int, offset: int) -> None:
        """All before `offset` is stored."""
        waiting = self._waiting[partition]
        while waiting and waiting[0].message.offset < offset:
            waiting.popleft().ack()


def add_agent(app: faust.App, name: str, topic: Any, lanes: Lanes) -> None:
    """Let a Faust agent do what the seam does."""
    acknowledgements = Acknowledgements()
    lanes.on_stored = acknowledgements.stored

    @app.agent(topic, name=name)
    async def step(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            lane = lanes[message.partition]
            if not await lane.room():
                continue
            acknowledgements.expect(event)
            lane.accept((_record(message),))


def _record(message: Any) -> Record:
    """A Faust message as a processor wants it."""
    return Record(
        message.topic, message.partition, message.offset, round(message.timestamp * 1000), message.key, message.value
    )
