"""A reader handles fetched records before the next fetch leaves; aiokafka's own fetcher runs, with a broker made up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition

from streamproc.kafka import vendor
from streamproc.kafka.vendor import read_first

PLACE = TopicPartition("turns", 0)
AIOKAFKA_LOOKS_AGAIN_S = 0.2


class Broker:
    """Answers each fetch with one record once `append` has made it; notes when fetches arrive."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._metadata_max_age_ms = 1_000
        self.cluster = SimpleNamespace(leader_for_partition=lambda _place: 1)
        self._appended: asyncio.Queue[bytes] = asyncio.Queue()
        self.fetches = 0
        self.requests: list[Any] = []

    def append(self, offset: int) -> None:
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1_000,
        )  # fmt: skip
        builder.append(0, 1_000, b"run", b"turn", headers=[])
        raw = bytearray(builder.build())
        raw[:8] = offset.to_bytes(8, "big")
        self._appended.put_nowait(bytes(raw))

    async def send(self, _node: int, request: Any) -> Any:
        self.fetches += 1
        self.requests.append(request)
        self.happened.append("fetch")
        raw = await self._appended.get()
        return SimpleNamespace(API_VERSION=4, topics=[("turns", [(0, 0, 9, 9, [], raw)])])


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[tuple[Broker, Any]]:
    broker = Broker()
    subscription: Any = SubscriptionState(loop=broker._loop)
    subscription.assign_from_user([PLACE])
    fetcher = Fetcher(broker, subscription)
    read_first(SimpleNamespace(_fetcher=fetcher))  # type: ignore[arg-type]
    subscription.seek(PLACE, 0)
    try:
        await until(lambda: broker.fetches == 1)
        yield broker, fetcher
    finally:
        async with asyncio.timeout(1):
            await fetcher.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(2):
        while not condition():
            await asyncio.sleep(0)


async def hops(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def read_one(broker: Broker, fetcher: Any) -> Any:
    """Let a reader wait, and give it a record."""
    reading = asyncio.ensure_future(fetcher.fetched_records([], timeout=10))
    await hops(3)
    broker.append(0)
    return await reading


async def test_the_next_fetch_leaves_when_the_reader_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "HOLD_MAX_S", 10.0)
    async with started() as (broker, fetcher):
        assert len((await read_one(broker, fetcher))[PLACE]) == 1
        await hops(20)
        assert broker.happened == ["fetch"]

        reading = asyncio.ensure_future(fetcher.fetched_records([], timeout=10))
        began = time.monotonic()
        await until(lambda: broker.fetches == 2)
        assert time.monotonic() - began < AIOKAFKA_LOOKS_AGAIN_S / 2
        broker.append(1)
        assert [record.offset for record in (await reading)[PLACE]] == [1]


@pytest.mark.parametrize("moment", range(8))
async def test_the_next_fetch_leaves_at_once_whatever_else_wakes_up_the_fetcher(moment: int) -> None:
    """Between the end of a fetch and its callback, the fetcher takes the broker for busy."""
    async with started() as (broker, fetcher):
        reading = asyncio.ensure_future(fetcher.fetched_records([], timeout=10))
        await hops(3)
        wakes_up = fetcher._wait_consume_future  # one of the futures for which the fetcher waits
        broker.append(0)
        await reading
        reading = asyncio.ensure_future(fetcher.fetched_records([], timeout=10))
        began = time.monotonic()
        await hops(moment)
        fetcher._notify(wakes_up)
        await until(lambda: broker.fetches == 2)
        assert time.monotonic() - began < AIOKAFKA_LOOKS_AGAIN_S / 2
        broker.append(1)
        await reading


async def test_a_reader_that_is_busy_delays_the_next_fetch_for_a_moment_only() -> None:
    async with started() as (broker, fetcher):
        await read_one(broker, fetcher)
        began = time.monotonic()
        await until(lambda: broker.fetches == 2)
        assert time.monotonic() - began < AIOKAFKA_LOOKS_AGAIN_S / 2


async def test_records_that_arrive_while_no_reader_waits_are_kept() -> None:
    async with started() as (broker, fetcher):
        broker.append(0)
        await until(lambda: bool(fetcher._records))
        assert len((await fetcher.fetched_records([], timeout=10))[PLACE]) == 1
        await until(lambda: broker.fetches == 2)


async def test_a_consumer_closes_while_a_fetch_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "HOLD_MAX_S", 10.0)
    async with started() as (broker, fetcher):
        await read_one(broker, fetcher)
        assert broker.fetches == 1
