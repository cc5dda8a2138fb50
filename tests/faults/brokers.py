"""Faults of the broker: it is missing at the start, or killed while the workers are busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deploy.local.kafka import MORTAL, Broker
from deploy.local.service import free_port
from streamproc.kafka import topics as kafka_topics
from tests.faults.scenario import PATIENCE_S, Scenario, ready
from tests.faults.workers import DECISIONS_PER_TURN
from tests.waiting import until


@asynccontextmanager
async def own_broker(scenario: Scenario) -> AsyncIterator[tuple[Broker, int]]:
    """Give the scenario its own Kafka, not started yet, and its port."""
    broker, port = Broker(scenario.directory / "kafka", MORTAL), free_port()
    scenario.use(f"127.0.0.1:{port}")
    try:
        yield broker, port
    finally:
        await asyncio.to_thread(broker.kill)


async def start(broker: Broker, port: int) -> None:
    """Start it with its existing data."""
    await asyncio.to_thread(broker.start, port)


async def broker_killed(scenario: Scenario) -> None:
    """Kill the broker with SIGKILL in mid-batch and restart it with its data."""
    times, turns = scenario.size((1, 3_000), (6, 60_000))
    async with own_broker(scenario) as (broker, port):
        await start(broker, port)
        async with scenario.open():
            for _ in range(2):
                await scenario.started_worker()
            for _ in range(times):
                sending = asyncio.create_task(scenario.send(turns // times))
                await scenario.random_moment(int(turns / times * DECISIONS_PER_TURN))
                await asyncio.to_thread(broker.kill)
                scenario.result.times += 1
                await start(broker, port)
                await sending
            await scenario.finish()


async def broker_away(scenario: Scenario) -> None:
    """Start the workers half a minute before their broker, and before their topics exist."""
    away_s, turns = scenario.size((3, 1_000), (30, 20_000))
    async with own_broker(scenario) as (broker, port):
        worker, other = scenario.start(), scenario.start()
        for one in (worker, other):
            await until(lambda one=one: one.said("no Kafka broker answers at"), PATIENCE_S)  # type: ignore[misc]
        scenario.result.times += 1
        back_at = time.monotonic() + away_s
        await until(lambda: time.monotonic() >= back_at or not (worker.running and other.running), PATIENCE_S)
        assert worker.running, "the worker gave up"
        assert other.running, "the worker gave up"
        await start(broker, port)
        await until(lambda: worker.said("run `streamproc topics apply`"), PATIENCE_S)
        await kafka_topics.apply(scenario.settings)
        async with scenario.open():
            for one in (worker, other):
                await ready(one)
            await scenario.send(turns)
            await scenario.finish()
