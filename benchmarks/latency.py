"""The latency from a turn to a cancelled task (publish → guard fires), compared with a bare round trip over two topics.

A stuck run has repeated its output once. The benchmark publishes the third copy, the real worker halts the run, and a
guard in this process cancels the body. It alternates with the bare round trip: a message to one topic, a relay in
another process, a message on another topic, back here. Both use the same clients, event loop, machine and background
load.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from statistics import median
from time import perf_counter, time
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from pydantic import SecretStr

from benchmarks.kafka_log import committed, consumer, create, end_offsets, own_topics, read_all
from benchmarks.signing import KINDS
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import percentile
from benchmarks.worker_process import Process, worker
from streamproc import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.kafka.options import connection_options
from streamproc.settings import Settings

P50_RATIO_MAX: Final = Aim("≤", 1.4)
P99_RATIO_MAX: Final = Aim("≤", 1.5)
BACKGROUND_PER_S: Final = 1_000
PAUSE_S: Final = (0.002, 0.012)  # between two probes: random, to avoid the rhythm of a client
ANSWER_TIMEOUT_S: Final = 30.0
START_TIMEOUT_S: Final = 120.0  # until a worker on a busy machine has committed the prepared turns
TURNS_TO_HALT: Final = 3  # equal ones
OUTPUT: Final = "I will try the same thing again."


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure the latency, and with fewer probes that of signed decisions."""
    ours, bare, background, legs = await _latencies(sizes.probes, settings, settings)
    signed: dict[str, list[float]] = {}
    for kind, (workers, readers) in KINDS.items():
        own = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-{kind}"})
        reading = own.model_copy(update={"control_key": SecretStr(readers.line())})
        signed[kind], *_ = await _latencies(
            max(5, sizes.probes // 4), own, reading, STREAMPROC_CONTROL_KEY=workers.line()
        )
    what = f"publish → guard fires, at {background:.0f} background turns/s"
    whole = [
        Row(
            f"latency.{name}", f"{what}, {name}", percentile(ours, share) * 1e3, "ms",
            "bare round trip over two topics", percentile(bare, share) * 1e3, aim=aim,
        )
        for name, share, aim in (("p50", 0.5, P50_RATIO_MAX), ("p99", 0.99, P99_RATIO_MAX))
    ]  # fmt: skip
    whole += [
        Row(
            f"latency.{kind.lower()}.{name}", f"the same, decisions signed with {kind}, {name}",
            percentile(taken, share) * 1e3, "ms", "unsigned", percentile(ours, share) * 1e3,
        )
        for kind, taken in signed.items()
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]  # fmt: skip
    return whole + [
        Row(f"latency.leg.{number}", f"of it, p50: {leg}", median(taken) * 1e3, "ms", detail=True)
        for number, (leg, taken) in enumerate(legs.items(), 1)
    ]


async def _latencies(
    probes: int, settings: Settings, reading: Settings, **environment: str
) -> tuple[list[float], list[float], float, dict[str, list[float]]]:
    """Return the seconds of each probe and bare round trip, the background turns per second, and the legs; `reading`
    are the listener's settings, `environment` is the worker's."""
    hops = (f"{settings.topic_prefix}.hop-1", f"{settings.topic_prefix}.hop-2")
    async with own_topics(settings):
        await create(settings, *hops)
        with worker(settings, **environment) as worker_process, Process(settings, "benchmarks.relay", *hops) as relay:
            async with (
                TurnPublisher(settings=settings) as turns,
                HaltListener(settings=reading) as halts,
                _round_trips(settings, *hops) as trips,
            ):
                probe = Probe(turns, halts)
                ours, bare, background = await _measure(probes, probe, trips, [worker_process, relay])
                if halts.unverified:
                    raise BenchmarkDefect(f"{halts.unverified} records were not believed")
        return ours, bare, background, await _legs(settings, probe.taken)


class Probe:
    """Halts stuck runs through publisher, worker and listener."""

    def __init__(self, turns: TurnPublisher, halts: HaltListener) -> None:
        self.turns = turns
        self.taken: dict[bytes, tuple[float, float]] = {}  # by run: start and end, wall clock
        self._halts = halts

    async def prepare(self, count: int) -> None:
        """Publish the first two turns of each run; return when the worker has committed them."""
        for number in range(count):
            for _ in range(TURNS_TO_HALT - 1):
                await self.turns.turn(run_id=f"probe-{number}", node="coder", output=OUTPUT)
        settings = self.turns.settings
        topic = settings.topic("turns")
        await self.turns.flush(ANSWER_TIMEOUT_S)
        ends = await end_offsets(settings, topic)
        if sum(ends.values()) != (TURNS_TO_HALT - 1) * count:
            raise BenchmarkDefect(f"{sum(ends.values())} turns were published, expected {(TURNS_TO_HALT - 1) * count}")
        async with asyncio.timeout(START_TIMEOUT_S):
            while await committed(settings, topic) != ends:
                await asyncio.sleep(0.1)

    async def take(self, number: int) -> float:
        """Return the seconds from the call that publishes the third turn to the end of the guarded body."""
        body = asyncio.ensure_future(self._guarded(f"probe-{number}"))
        await asyncio.sleep(0)
        began, began_at = perf_counter(), time()
        await self.turns.turn(run_id=f"probe-{number}", node="coder", output=OUTPUT)
        seconds = await body - began
        self.taken[f"probe-{number}".encode()] = began_at, began_at + seconds
        return seconds

    @property
    def reported(self) -> int:
        """The records that guards have written to the topic of turns."""
        return self._halts.reports.sent

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
    """Sends messages through the relay and receives them."""

    def __init__(self, producer: AIOKafkaProducer, reader: AIOKafkaConsumer, topic: str) -> None:
        self._producer = producer
        self._reader = reader
        self._topic = topic
        self._waiting: dict[bytes, asyncio.Future[float]] = {}

    async def take(self, number: int) -> float:
        """Return the seconds from sending a message to receiving it back."""
        key = f"trip-{number}".encode()
        back = self._waiting[key] = asyncio.get_running_loop().create_future()
        began = perf_counter()
        await self._producer.send(self._topic, b"x" * 250, key)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            received: float = await back
        return received - began

    async def listen(self) -> None:
        """Receive messages until cancelled."""
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
        listening = asyncio.ensure_future(trips.listen())
        try:
            yield trips
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
            await producer.stop()


async def _measure(
    count: int, probe: Probe, trips: RoundTrips, processes: list[Process]
) -> tuple[list[float], list[float], float]:
    """Alternate probes and bare round trips under background load. Return the seconds of each, and the background
    turns per second."""
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
        own = len(ours) + probe.reported  # third turns, and what their guards reported
        background = sum((await end_offsets(settings, topic)).values()) - before - own
    return ours[warm_up:], bare[warm_up:], background / seconds


async def _grown(settings: Settings, topic: str) -> int:
    """Wait until a topic grows; return its number of records."""
    before = sum((await end_offsets(settings, topic)).values())
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while (now := sum((await end_offsets(settings, topic)).values())) == before:
            await asyncio.sleep(0.05)
    return now


async def _legs(settings: Settings, taken: dict[bytes, tuple[float, float]]) -> dict[str, list[float]]:
    """Return the seconds of each leg, from the times at which the broker appended the turn and the decision (ms)."""
    turns = await _appended(settings, "turns", taken, TURNS_TO_HALT - 1)  # a guard's report follows it
    controls = await _appended(settings, "control", taken, -1)  # a warning precedes it
    return {
        "publish → the turn is in the log": [turns[run] - began for run, (began, _) in taken.items()],
        "→ the decision is in the log": [controls[run] - turns[run] for run in taken],
        "→ guard fires": [ended - controls[run] for run, (_, ended) in taken.items()],
    }


async def _appended(settings: Settings, topic: str, runs: Iterable[bytes], place: int) -> dict[bytes, float]:
    """Return when the broker appended one record of each run, by its place among them, in epoch seconds."""
    times: dict[bytes, list[float]] = {run: [] for run in runs}
    async for records in read_all(settings, settings.topic(topic)):
        for record in records:
            if record.key in times:
                times[record.key].append(record.timestamp / 1000)
    return {run: of_run[place] for run, of_run in times.items()}
