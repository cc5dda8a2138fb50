"""From a turn to a cancelled task: publish → guard fires, beside a bare round trip over two topics.

A stuck run has said the same twice; its third time is published, the real worker halts it, and a guard in this process
cancels the body. Taken in turns with the bare round trip: a message to one topic, a relay in another process, a
message on another topic, back here. Both run on the same clients, loop and machine, with the same load beside them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.kafka_log import committed, consumer, end_offsets, make, own_topics
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import percentile
from benchmarks.worker_process import Process, worker
from streamproc import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.settings import Settings

P50_RATIO_MAX: Final = Aim("≤", 1.5)
P99_RATIO_MAX: Final = Aim("≤", 2)
BACKGROUND_PER_S: Final = 1_000
PAUSE_S: Final = (0.002, 0.012)  # between two probes: at random, so that no rhythm of a client is met
ANSWER_TIMEOUT_S: Final = 30.0
START_TIMEOUT_S: Final = 120.0  # of a worker, on a busy machine, until it has committed what was there before
SAID: Final = "I will try the same thing again."


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """The latency's part of the table."""
    hops = (f"{settings.topic_prefix}.hop-1", f"{settings.topic_prefix}.hop-2")
    async with own_topics(settings):
        await make(settings, *hops)
        with worker(settings) as working, Process(settings, "benchmarks.relay", *hops) as relaying:
            async with (
                TurnPublisher(settings=settings) as turns,
                HaltListener(settings=settings) as halts,
                _round_trips(settings, *hops) as trips,
            ):
                ours, bare, beside = await _measure(sizes.probes, Probe(turns, halts), trips, [working, relaying])
    what = f"publish → guard fires, {beside:.0f} turns/s beside it"
    return [
        Row(
            f"latency.{name}", f"{what}, {name}", percentile(ours, share) * 1e3, "ms",
            "bare round trip over two topics", percentile(bare, share) * 1e3, aim=aim,
        )
        for name, share, aim in (("p50", 0.5, P50_RATIO_MAX), ("p99", 0.99, P99_RATIO_MAX))
    ]  # fmt: skip


class Probe:
    """A stuck run, halted through the whole product."""

    def __init__(self, turns: TurnPublisher, halts: HaltListener) -> None:
        self.turns = turns
        self._halts = halts

    async def prepare(self, count: int) -> None:
        """Runs that have said the same twice; their states are with the worker when this returns."""
        for number in range(count):
            for _ in range(2):
                await self.turns.turn(run_id=f"probe-{number}", node="coder", output=SAID)
        settings = self.turns.settings
        topic = settings.topic("turns")
        await self.turns.flush(ANSWER_TIMEOUT_S)
        ends = await end_offsets(settings, topic)
        if sum(ends.values()) != 2 * count:
            raise BenchmarkDefect(f"{sum(ends.values())} turns were published, expected {2 * count}")
        async with asyncio.timeout(START_TIMEOUT_S):
            while await committed(settings, topic) != ends:
                await asyncio.sleep(0.1)

    async def take(self, number: int) -> float:
        """Seconds from the call that publishes the third to the end of the guarded body."""
        body = asyncio.ensure_future(self._guarded(f"probe-{number}"))
        await asyncio.sleep(0)
        began = perf_counter()
        await self.turns.turn(run_id=f"probe-{number}", node="coder", output=SAID)
        return await body - began

    async def _guarded(self, run_id: str) -> float:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._halts.guard(run_id):
                await asyncio.Event().wait()
        except Halted as halted:
            if halted.run_id != run_id:
                raise BenchmarkDefect(f"the guard of {run_id} fired for {halted.run_id}") from None
            return perf_counter()
        raise BenchmarkDefect(f"{run_id} was not halted")


class RoundTrips:
    """Messages out and back through the relay."""

    def __init__(self, producer: AIOKafkaProducer, reader: AIOKafkaConsumer, topic: str) -> None:
        self._producer = producer
        self._reader = reader
        self._topic = topic
        self._waiting: dict[bytes, asyncio.Future[float]] = {}

    async def take(self, number: int) -> float:
        """Seconds from sending a message to having it back."""
        key = f"trip-{number}".encode()
        back = self._waiting[key] = asyncio.get_running_loop().create_future()
        began = perf_counter()
        await self._producer.send(self._topic, b"x" * 250, key)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            came: float = await back
        return came - began

    async def listen(self) -> None:
        """For ever: hear what comes back."""
        async for record in self._reader:
            waiting = self._waiting.pop(record.key or b"", None)
            if waiting is not None:
                waiting.set_result(perf_counter())


@asynccontextmanager
async def _round_trips(settings: Settings, out: str, back: str) -> AsyncIterator[RoundTrips]:
    producer = AIOKafkaProducer(**settings.kafka(), enable_idempotence=True)
    await producer.start()
    async with consumer(settings, back) as reader:
        trips = RoundTrips(producer, reader, out)
        hearing = asyncio.ensure_future(trips.listen())
        try:
            yield trips
        finally:
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing
            await producer.stop()


async def _measure(
    count: int, probe: Probe, trips: RoundTrips, processes: list[Process]
) -> tuple[list[float], list[float], float]:
    """Seconds of each probe and of each bare round trip, taken in turns, with the same turns beside them: how many of
    these a second."""
    warm_up = max(2, count // 20)
    await probe.prepare(count + warm_up)
    settings, topic = probe.turns.settings, probe.turns.settings.topic("turns")
    dice = random.Random(5)
    ours, bare = [], []
    with Process(settings, "benchmarks.background", str(BACKGROUND_PER_S)) as load:
        before = await _grown(settings, topic)
        began = perf_counter()
        for number in range(count + warm_up):
            ours.append(await probe.take(number))
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            bare.append(await trips.take(number))
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            for process in (*processes, load):
                process.check()
        seconds = perf_counter() - began
        beside = sum((await end_offsets(settings, topic)).values()) - before - len(ours)
    return ours[warm_up:], bare[warm_up:], beside / seconds


async def _grown(settings: Settings, topic: str) -> int:
    """How long a topic is, as soon as it grows."""
    before = sum((await end_offsets(settings, topic)).values())
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while (now := sum((await end_offsets(settings, topic)).values())) == before:
            await asyncio.sleep(0.05)
    return now
