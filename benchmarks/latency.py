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
from statistics import median
from time import perf_counter, time
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.kafka_log import committed, consumer, end_offsets, make, own_topics, read_all
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import percentile
from benchmarks.worker_process import Process, worker
from streamproc import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.kafka.options import connection_options
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
                probe = Probe(turns, halts)
                ours, bare, beside = await _measure(sizes.probes, probe, trips, [working, relaying])
        legs = await _legs(settings, probe.taken)
    what = f"publish → guard fires, {beside:.0f} turns/s beside it"
    whole = [
        Row(
            f"latency.{name}", f"{what}, {name}", percentile(ours, share) * 1e3, "ms",
            "bare round trip over two topics", percentile(bare, share) * 1e3, aim=aim,
        )
        for name, share, aim in (("p50", 0.5, P50_RATIO_MAX), ("p99", 0.99, P99_RATIO_MAX))
    ]  # fmt: skip
    return whole + [
        Row(f"latency.leg.{number}", f"of it, p50: {leg}", median(taken) * 1e3, "ms", detail=True)
        for number, (leg, taken) in enumerate(legs.items(), 1)
    ]


class Probe:
    """A stuck run, halted through the whole product."""

    def __init__(self, turns: TurnPublisher, halts: HaltListener) -> None:
        self.turns = turns
        self.taken: dict[bytes, tuple[float, float]] = {}  # by run: from when to when, by the clock on the wall
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
        began, began_at = perf_counter(), time()
        await self.turns.turn(run_id=f"probe-{number}", node="coder", output=SAID)
        seconds = await body - began
        self.taken[f"probe-{number}".encode()] = began_at, began_at + seconds
        return seconds

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
    producer = AIOKafkaProducer(**connection_options(settings), enable_idempotence=True)
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


async def _legs(settings: Settings, taken: dict[bytes, tuple[float, float]]) -> dict[str, list[float]]:
    """Seconds of each part of the way, by the times at which the broker appended the turn and the decision (ms)."""
    appended: dict[str, dict[bytes, float]] = {"turns": {}, "control": {}}
    for name, times in appended.items():
        async for records in read_all(settings, settings.topic(name)):
            times.update((record.key, record.timestamp / 1000) for record in records if record.key in taken)
    turns, controls = appended["turns"], appended["control"]  # of each run the last: its third turn, and its halt
    return {
        "publish → the turn is in the log": [turns[run] - began for run, (began, _) in taken.items()],
        "→ the decision is in the log": [controls[run] - turns[run] for run in taken],
        "→ guard fires": [ended - controls[run] for run, (_, ended) in taken.items()],
    }
