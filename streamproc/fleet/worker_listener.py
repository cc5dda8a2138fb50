"""Hears the heartbeats of workers: once, for a command, or for as long as a program runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from streamproc.errors import StreamprocError
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.watching import Watching, watching_of
from streamproc.fleet.workers import GONE_AFTER_S, ROLE, Workers
from streamproc.kafka.follow import Follower, Topic
from streamproc.kafka.reading import open_consumer
from streamproc.kafka.session import CONNECT_TIMEOUT_S, Outage
from streamproc.kafka.vendor import network_client

if TYPE_CHECKING:
    from streamproc.kafka.follow import Batches
    from streamproc.settings import Settings

silent = logging.getLogger(f"{__name__}.once")  # a command reports what it cannot hear itself
silent.addHandler(logging.NullHandler())
silent.propagate = False

ENDS_EVERY_S: Final = 1.0
POLL_MS: Final = 200
LOOK_S: Final = 0.05
PATIENCE_S: Final = 3.0  # for a first heartbeat, where the last ones are old
OLD_S: Final = 60.0  # clocks of machines differ by less
ANSWER_TIMEOUT_S: Final = 5.0


class WorkerListener:
    """Follows the workers topic while `run` runs. `workers` is what it has heard."""

    def __init__(self, settings: Settings, outage: Outage) -> None:
        self.workers = Workers(record_signer(settings), settings.shadow)
        self._at = TopicPartition(settings.topic(ROLE), 0)
        self.follower = Follower(
            settings, [Topic(self._at.topic, optional=True)], self._handle, outage,
            before_poll=self._look, ends_every_s=ENDS_EVERY_S, poll_ms=POLL_MS,
        )  # fmt: skip

    async def run(self) -> None:
        """Listen until cancelled."""
        await self.follower.run()

    @property
    def exists(self) -> bool:
        """Whether the topic is there, and this user may read it."""
        return not self.follower.missing

    async def _handle(self, batches: Batches) -> None:
        for records in batches.values():
            for record in records:
                self.workers.apply(record, time.monotonic())

    async def _look(self, _consumer: Any) -> None:
        note_contact(self.workers, self.follower, self._at)


def note_contact(workers: Workers, follower: Follower, at: TopicPartition) -> None:
    """Tell the tracker of workers when a follower that reads their topic was in contact with the broker."""
    read, end = follower.positions.get(at, -1), follower.ends.get(at)
    if follower.caught_up and follower.freshness is not None and end is not None and read >= end:
        workers.contact(follower.freshness)


async def listen_for_workers(settings: Settings) -> Watching | None:
    """Listen for as long as it takes to know which partitions are watched, ten seconds at most.

    None: there is no such topic, or this user must not read it.

    Raises `Unavailable` if the broker does not answer.
    """
    listener = WorkerListener(settings, Outage(silent, "listening for workers", "cannot hear the workers", "back"))
    running = asyncio.create_task(listener.run())
    ends = asyncio.create_task(ends_of_turns(settings))
    caught_up_s = 0.0
    try:
        until_s = time.monotonic() + CONNECT_TIMEOUT_S + GONE_AFTER_S
        while time.monotonic() < until_s:
            await asyncio.sleep(LOOK_S)
            if listener.follower.trouble is not None:
                raise listener.follower.trouble
            if not listener.exists:
                return None
            if not listener.follower.caught_up:
                continue
            caught_up_s = caught_up_s or time.monotonic()
            if time.monotonic() - caught_up_s > PATIENCE_S and _are_old(listener.workers):
                listener.workers.settle()
            if listener.workers.is_settled:
                break
        return watching_of(listener.workers, time.monotonic(), ends=await ends, lag_warn_s=settings.lag_warn_s)
    finally:
        for task in (running, ends):
            task.cancel()
        await asyncio.wait([running, ends])


def _are_old(workers: Workers) -> bool:
    """Return whether the last heartbeats are so old that no worker gives any, even if clocks differ."""
    newest_ms = max((row.at_ms for row in workers.rows()), default=0)
    return newest_ms < (time.time() - OLD_S) * 1000


async def ends_of_turns(settings: Settings) -> dict[int, int] | None:
    """Return the ends of the turns topic; None if this user must not ask for them, or the broker does not answer."""
    topic = settings.topic("turns")
    with contextlib.suppress(StreamprocError, KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_TIMEOUT_S), open_consumer(settings) as consumer:
            cluster = await network_client(consumer).fetch_all_metadata()
            places = [TopicPartition(topic, number) for number in cluster.partitions_for_topic(topic) or ()]
            found = await consumer.end_offsets(places) if places else {}
            return {place.partition: end for place, end in found.items()} or None
    return None
