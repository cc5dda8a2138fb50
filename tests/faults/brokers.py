"""What happens to the broker: it is away at the start, and it is killed in the middle of the work."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from deploy.local.kafka import Broker, free_port
from streamproc.kafka import topics as kafka_topics
from tests.faults.scene import PATIENCE_S, ready
from tests.faults.workers import TOLD_A_TURN
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.faults.scene import Scene


@asynccontextmanager
async def own_broker(scene: Scene) -> AsyncIterator[tuple[Broker, int]]:
    """A Kafka of this scene's own, not started yet, and its port."""
    broker, port = Broker(scene.directory / "kafka"), free_port()
    scene.use(f"127.0.0.1:{port}")
    try:
        yield broker, port
    finally:
        await asyncio.to_thread(broker.kill)


async def start(broker: Broker, port: int) -> None:
    """Start it (again), with what it had."""
    await asyncio.to_thread(broker.start, port)


async def broker_killed(scene: Scene) -> None:
    """kill -9 of the broker in mid-batch; it comes back with what it had."""
    times, turns = scene.size((1, 3_000), (6, 60_000))
    async with own_broker(scene) as (broker, port):
        await start(broker, port)
        async with scene.open():
            for _ in range(2):
                await scene.started_worker()
            for _ in range(times):
                sending = asyncio.create_task(scene.send(turns // times))
                await scene.moment(int(turns / times * TOLD_A_TURN))
                await asyncio.to_thread(broker.kill)
                scene.figures.times += 1
                await start(broker, port)
                await sending
            await scene.finish()


async def broker_away(scene: Scene) -> None:
    """The workers start before their broker, half a minute long, and before their topics."""
    away_s, turns = scene.size((3, 1_000), (30, 20_000))
    async with own_broker(scene) as (broker, port):
        worker, other = scene.start(), scene.start()
        for one in (worker, other):
            await until(lambda one=one: one.said("does not answer: start it, or set"), PATIENCE_S)  # type: ignore[misc]
        scene.figures.times += 1
        back_at = time.monotonic() + away_s
        await until(lambda: time.monotonic() >= back_at or not (worker.running and other.running), PATIENCE_S)
        assert worker.running, "it has given up"
        assert other.running, "it has given up"
        await start(broker, port)
        await until(lambda: worker.said("run `streamproc topics apply`"), PATIENCE_S)
        await kafka_topics.apply(scene.settings)
        async with scene.open():
            for one in (worker, other):
                await ready(one)
            await scene.send(turns)
            await scene.finish()
