"""Guards know when no worker decides, on a real Kafka with real workers in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streamproc.client import HaltListener
from streamproc.errors import Halted
from streamproc.fleet.keyring import new_keys
from streamproc.fleet.workers import ROLE
from streamproc.kafka import topics
from streamproc.kafka.options import connection_options
from streamproc.model.heartbeat import encode_heartbeat
from tests.client.records import guarded
from tests.fleet.heartbeats import heartbeat
from tests.kafka.deleted_topics import delete_topics
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, looping_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from deploy.local.kafka import Broker
    from streamproc.settings import Settings
    from tests.worker.running import WorkerProcess

    Start = Callable[..., WorkerProcess]


pytestmark = pytest.mark.kafka


class Seen:
    """The states of a listener, each with the time at which it was called back."""

    def __init__(self, halts: HaltListener) -> None:
        self.names: list[str] = []
        self.at_s: list[float] = []
        self._halts = halts
        halts.on_state(self._note)

    def _note(self, state: Any) -> None:
        self.names.append(state.name)
        self.at_s.append(time.monotonic())

    async def until(self, name: str) -> float:
        """Wait until the state is this; return when it became so."""
        await until(lambda: self._halts.state.name == name, 90, f"{name}, after {self.names}")
        return self.at_s[-1]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the watch has warned of: the first words of each message."""
    found = [one for one in caplog.records if one.name == "streamproc.client.heartbeat_watch"]
    return [one.message.partition(":")[0] for one in found if one.levelname == "WARNING"]


async def enter(halts: HaltListener, run_id: str) -> None:
    async with halts.guard(run_id):
        pass


@pytest.mark.long
async def test_a_guard_misses_killed_and_frozen_workers_waits_and_goes_on_when_they_are_back(
    brokers: str, topic_prefix: str, start_worker: Start, caplog: pytest.LogCaptureFixture, record_property: Any
) -> None:
    settings = settings_for(brokers, topic_prefix)
    await topics.apply(settings)
    workers = [start_worker(settings), start_worker(settings)]
    async with HaltListener(settings=settings, on_unwatched="pause") as halts:
        seen = Seen(halts)
        await seen.until("watching")
        await until(lambda: {halts.state_of(f"r{n}").name for n in range(40)} == {"watching"}, 60, "all partitions")
        body = await guarded(halts, "running")

        for worker in workers:
            worker.end(signal.SIGKILL)
        killed_s = time.monotonic()
        record_property("unwatched_after_s", await seen.until("unwatched") - killed_s)
        assert halts.state.since_ms > 0
        assert warnings(caplog) == ["no worker decides"]
        waiting = asyncio.create_task(enter(halts, "r1"))
        await until(lambda: len(halts.command_handler._waiting) == 1, what="the guard to wait")
        await enter_freely(halts)
        assert not body.done(), "a running body is left alone"

        started_s = time.monotonic()
        again = start_worker(settings)
        record_property("watching_after_s", await seen.until("watching") - started_s)
        await asyncio.wait_for(waiting, 60)
        assert warnings(caplog) == ["no worker decides", "workers decide again"]

        again.send(signal.SIGSTOP)
        await seen.until("unwatched")
        again.send(signal.SIGCONT)
        await seen.until("watching")
        assert seen.names == ["watching", "unwatched", "watching", "unwatched", "watching"]
        assert not body.done()
        await Topics(settings).send(looping_run("running", 12))
        with pytest.raises(Halted):
            await asyncio.wait_for(body, 60)


async def enter_freely(halts: HaltListener) -> None:
    """A guard that continues does not wait."""
    async with halts.guard("r2", on_unwatched="continue") as guard:
        assert guard.state.name == "unwatched"


@pytest.mark.long
async def test_a_broker_that_is_away_is_said_and_is_no_silence_of_workers(
    own_broker: Broker, topic_prefix: str, start_worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    port = own_broker.start().port
    settings = settings_for(f"127.0.0.1:{port}", topic_prefix, partitions=1)
    await topics.apply(settings)
    worker = start_worker(settings)
    async with HaltListener(settings=settings, on_unwatched="pause") as halts:
        seen = Seen(halts)
        await seen.until("watching")

        own_broker.kill()
        await seen.until("disconnected")
        waiting = asyncio.create_task(enter(halts, "r1"))
        await until(lambda: len(halts.command_handler._waiting) == 1, what="the guard to wait")
        own_broker.start(port)
        await seen.until("watching")
        await asyncio.wait_for(waiting, 60)

        assert seen.names == ["watching", "disconnected", "watching"]
        assert warnings(caplog) == ["Kafka does not answer", "workers decide again"]
    assert worker.end() == 0


@pytest.mark.long
async def test_without_the_topic_or_a_heartbeat_nothing_is_known_and_nothing_waits(
    brokers: str, topic_prefix: str, start_worker: Start
) -> None:
    settings = settings_for(brokers, topic_prefix)
    await topics.apply(settings)
    await delete_topics(settings, settings.topic(ROLE))
    async with HaltListener(settings=settings, on_unwatched="pause") as halts:
        seen = Seen(halts)
        assert halts._consumer.follower.missing == (settings.topic(ROLE),)
        await until(lambda: halts.watch.workers._contact_s is not None, what="contact")
        assert halts.state.name == "unknown"
        await asyncio.wait_for(enter(halts, "r1"), 60)

        await topics.apply(settings)
        worker = start_worker(settings)
        await seen.until("watching")
        assert seen.names == ["watching"]
    assert worker.end() == 0


@contextlib.asynccontextmanager
async def forging(settings: Settings) -> AsyncIterator[list[int]]:
    """One without keys gives heartbeats all the time: unsigned ones, and copies of those that a worker has signed."""
    where = TopicPartition(settings.topic(ROLE), 0)
    written: list[int] = []

    async def forge() -> None:
        options = connection_options(settings)
        async with AIOKafkaProducer(**options) as producer, AIOKafkaConsumer(**options) as consumer:
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            signed: list[Any] = []
            while True:
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    signed += [one for one in batch if one.headers]
                now_ms = int(time.time() * 1000)
                unsigned = encode_heartbeat(heartbeat("forged", now_ms, owned=range(4)))
                await producer.send_and_wait(where.topic, unsigned, b"forged")
                for one in signed[-8:]:
                    await producer.send_and_wait(where.topic, one.value, one.key, headers=list(one.headers))
                written.append(len(signed))

    task = asyncio.create_task(forge())
    try:
        yield written
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.long
async def test_forged_and_recorded_heartbeats_hide_nothing(
    brokers: str, topic_prefix: str, start_worker: Start
) -> None:
    private, public = new_keys("workers", ed25519=True)
    settings = settings_for(brokers, topic_prefix)
    await topics.apply(settings)
    worker = start_worker(settings.model_copy(update={"control_key": _secret(private.line())}))
    agents = settings.model_copy(update={"control_key": _secret(public.line())})
    async with HaltListener(settings=agents, on_unwatched="pause") as halts, forging(settings) as written:
        seen = Seen(halts)
        await seen.until("watching")
        await until(lambda: any(written), what="recorded heartbeats")

        worker.end(signal.SIGKILL)

        await seen.until("unwatched")
        forged = len(written)
        await until(lambda: len(written) > forged + 3, what="more forged heartbeats")
        assert halts.state.name == "unwatched"
        assert halts.watch.workers.refused


def _secret(text: str) -> Any:
    from pydantic import SecretStr

    return SecretStr(text)
