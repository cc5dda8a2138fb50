"""Who hears the workers on a real Kafka knows which of them live, and what they decide on."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from streamproc.fleet.watching import watching_of
from streamproc.fleet.worker_listener import WorkerListener, ends_of_turns, listen_for_workers
from streamproc.fleet.workers import ROLE
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.session import Outage
from tests.kafka.deleted_topics import delete_topics
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, honest_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from deploy.local.kafka import Broker
    from streamproc.fleet.watching import Watching
    from streamproc.settings import Settings
    from tests.worker.running import WorkerProcess

    Start = Callable[[Settings], WorkerProcess]


LOG = logging.getLogger(__name__)


class Ear:
    """A listener, and what it has known."""

    def __init__(self, settings: Settings) -> None:
        self._listener = WorkerListener(settings, Outage(LOG, "listening", "lost", "back"))
        self.seen: set[str] = set()

    def now(self) -> Watching:
        found = watching_of(self._listener.workers, time.monotonic(), lag_warn_s=30)
        self.seen.add(found.state.name)
        return found

    def knows(self, name: str, *, unwatched: int = 0) -> bool:
        found = self.now()
        return found.state.name == name and len(found.unwatched) == unwatched

    async def until(self, name: str, *, unwatched: int = 0) -> None:
        await until(lambda: self.knows(name, unwatched=unwatched), 60, f"{name}, {unwatched} partitions unwatched")


@asynccontextmanager
async def listening(settings: Settings) -> AsyncIterator[Ear]:
    ear = Ear(settings)
    task = asyncio.create_task(ear._listener.run())
    try:
        yield ear
    finally:
        task.cancel()
        await asyncio.wait([task])


def local(_ms: int) -> str:
    return "14:03:07"


@pytest.mark.long
async def test_a_killed_and_a_frozen_worker_are_missed_and_a_stopped_one_at_once(
    brokers: str, topic_prefix: str, start_worker: Start
) -> None:
    settings = settings_for(brokers, topic_prefix)
    await kafka_topics.apply(settings)
    async with listening(settings) as ear:
        worker = start_worker(settings)
        await ear.until("watching")

        worker.send(signal.SIGSTOP)
        await ear.until("unwatched", unwatched=4)
        assert [row.state for row in ear.now().rows] == ["silent"]
        worker.send(signal.SIGCONT)
        await ear.until("watching")

        worker.end(signal.SIGKILL)
        await ear.until("unwatched", unwatched=4)
        await Topics(settings).send(honest_run("waiting", 5))
        found = await listen_for_workers(settings)
        assert found.sentence(local) == ("no worker has decided since 14:03:07; 5 turns wait in 1 of 4 partitions")

        again = start_worker(settings)
        await ear.until("watching")
        assert again.end() == 0
        await until(lambda: "stopped" in [row.state for row in ear.now().rows])
        assert ear.now().state.name == "unwatched"


def shares(found: Watching) -> list[int]:
    return [len(row.heartbeat.partitions) for row in found.rows if row.state == "deciding"]


@pytest.mark.long
async def test_partitions_of_a_dead_worker_are_taken_over_and_no_alarm_stays(
    brokers: str, topic_prefix: str, start_worker: Start
) -> None:
    settings = settings_for(brokers, topic_prefix)
    await kafka_topics.apply(settings)
    async with listening(settings) as ear:
        first, second = start_worker(settings), start_worker(settings)
        await until(lambda: shares(ear.now()) == [2, 2], 90, "both to share the partitions")
        await ear.until("watching")
        ear.seen.clear()

        second.end(signal.SIGKILL)

        await until(lambda: [row.state for row in ear.now().rows].count("silent") == 1, 60, "one to be missed")
        await ear.until("watching")
        assert ear.seen == {"watching"}, "the fleet as a whole was watched all the time"
        assert first.end() == 0


@pytest.mark.long
async def test_a_broker_that_is_away_is_no_silence_of_workers(
    own_broker: Broker, topic_prefix: str, start_worker: Start
) -> None:
    port = own_broker.start().port
    settings = settings_for(f"127.0.0.1:{port}", topic_prefix, partitions=1)
    await kafka_topics.apply(settings)
    worker = start_worker(settings)
    async with listening(settings) as ear:
        await ear.until("watching")
        ear.seen.clear()
        own_broker.kill()
        await ear.until("disconnected")
        own_broker.start(port)
        await until(lambda: ear.now().state.name != "disconnected", 120, "the broker to be back", every_s=0.2)
        await ear.until("watching")
        assert ear.seen == {"watching", "disconnected"}
    assert worker.end() == 0


async def test_a_listener_without_the_topic_or_without_workers_knows_nothing(brokers: str, topic_prefix: str) -> None:
    settings = settings_for(brokers, topic_prefix)
    await kafka_topics.apply(settings)
    found = await listen_for_workers(settings)
    assert (found.state.name, found.level, found.waiting) == ("unknown", "unknown", None)
    assert await ends_of_turns(settings) == dict.fromkeys(range(4), 0)

    await delete_topics(settings, settings.topic(ROLE))
    assert await listen_for_workers(settings) is None
