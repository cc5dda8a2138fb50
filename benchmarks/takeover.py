"""The death of a worker under load, on a real Kafka, beside what `streamproc plan` simulates.

    make kafka-start; STREAMPROC_BROKERS=... .venv/bin/python -m benchmarks.takeover --turns-per-second 15000

It is not a part of the table: workers, broker and publisher need a core each, or the survivor gets less than a core and
takes longer than simulated. Turns carry nothing but their node, so one worker's most is measured with such turns first.
How long turns wait is seen from outside: from committed offsets, and from when the log had got there.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from contextlib import ExitStack
from itertools import count
from typing import Final

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.fleet_log import Record, partition_of
from benchmarks.kafka_log import committed, end_offsets, fill_topic, own_topics
from benchmarks.scaling import ready
from benchmarks.worker_process import Group, worker
from streamproc.cli.capacity import Takeover, simulate_takeover
from streamproc.kafka.options import connection_options
from streamproc.model import wire
from streamproc.model.wire import WIRE_VERSION, Turn
from streamproc.settings import Settings, load_settings

PARTITIONS: Final = 8
RUNS: Final = 4_000
SENT_EVERY_S: Final = 0.05
LOOKED_EVERY_S: Final = 0.2
STEADY_S: Final = 5.0  # of load before the death
LATE_S: Final = 3.0  # committed offsets are up to a second behind, also when nothing is wrong
QUIET_S: Final = 5.0  # without late turns, after which it is over
REBALANCE_S: Final = 2.0  # besides the session: the aim of the part `failover`
TIMEOUT_S: Final = 180.0


class Turns:
    """Makes turns of many runs, each in its partition."""

    def __init__(self) -> None:
        self._numbers = count()
        self._runs = [f"takeover-{number}" for number in range(RUNS)]
        self._places = [partition_of(run, PARTITIONS) for run in self._runs]

    def next(self, turns: int) -> list[list[Record]]:
        """Return so many turns, by partition."""
        now_ms = int(time.time() * 1000)
        found: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        for number in (next(self._numbers) for _ in range(turns)):
            run = self._runs[number % RUNS]
            turn = Turn(w=WIRE_VERSION, run_id=run, node="coder", event_id=f"{number}", at=now_ms)
            found[self._places[number % RUNS]].append(Record(run.encode(), wire.encode(turn), now_ms))
        return found


class Delays:
    """Notes how far the log and the commits are, and returns how long the oldest turn has waited."""

    def __init__(self, reader: AIOKafkaConsumer, places: list[TopicPartition]) -> None:
        self._reader = reader
        self._places = places
        self._ends: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        self._times: list[float] = []

    async def look(self) -> float:
        """Return the seconds for which the oldest turn waits that no worker has committed."""
        ends = await self._reader.end_offsets(self._places)
        self._times.append(time.monotonic())
        for place in self._places:
            self._ends[place].append(ends[place])
        return max([await self._waited(place) for place in self._places])

    async def _waited(self, place: TopicPartition) -> float:
        done = await self._reader.committed(place) or 0
        # The first look at which the log held more than what is committed.
        first = bisect_left(self._ends[place], done + 1)
        return self._times[-1] - self._times[first] if first < len(self._times) else 0.0


async def most_per_s(settings: Settings, turns: int) -> float:
    """Return how many of these turns one worker steps in a second."""
    own = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-most", "session_timeout_s": 60})
    async with own_topics(own):
        with worker(own) as process:
            await ready(Group([process]), PARTITIONS)
            process.pause()
            await fill_topic(own, own.topic("turns"), Turns().next(turns))
            ends = await end_offsets(own, own.topic("turns"))
            process.go_on()
            began = time.monotonic()
            while await committed(own, own.topic("turns")) != ends:
                process.check()
            return turns / (time.monotonic() - began)


async def measure(settings: Settings, turns_per_s: float, workers: int) -> Takeover:
    """Kill one of the workers under load, and return how long turns waited, and until when."""
    topic = settings.topic("turns")
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with own_topics(settings):
        with ExitStack() as stack:
            named = [settings.model_copy(update={"instance": f"takeover-{number}"}) for number in range(workers)]
            group = Group([stack.enter_context(worker(one)) for one in named])
            await ready(group, PARTITIONS)
            reader = AIOKafkaConsumer(
                **connection_options(settings), group_id=settings.worker_group, enable_auto_commit=False
            )
            await reader.start()
            reader.assign(places)
            load = asyncio.ensure_future(_publish(settings, topic, turns_per_s))
            try:
                return await _killed(group, Delays(reader, places), load)
            finally:
                load.cancel()
                await asyncio.gather(load, return_exceptions=True)
                await reader.stop()


async def _killed(group: Group, delays: Delays, load: asyncio.Future[None]) -> Takeover:
    began = time.monotonic()
    while time.monotonic() < began + STEADY_S:
        await delays.look()
        await asyncio.sleep(LOOKED_EVERY_S)
    killed = last_late = group.members[0].kill()
    worst = 0.0
    while time.monotonic() < max(killed + QUIET_S * 2, last_late + QUIET_S):
        if load.done():
            load.result()
        Group(group.members[1:]).check()
        waited = await delays.look()
        worst = max(worst, waited)
        if waited > LATE_S:
            last_late = time.monotonic()
        if time.monotonic() > killed + TIMEOUT_S:
            return Takeover(worst, None)
        await asyncio.sleep(LOOKED_EVERY_S)
    return Takeover(worst, last_late - killed)


async def _publish(settings: Settings, topic: str, turns_per_s: float) -> None:
    """Publish at a steady rate until cancelled."""
    producer = AIOKafkaProducer(**connection_options(settings), enable_idempotence=True)
    await producer.start()
    try:
        turns, sent, began = Turns(), 0, time.monotonic()
        while True:
            due = int((time.monotonic() - began) * turns_per_s) - sent
            sent += due
            for number, records in enumerate(turns.next(due)):
                batch = producer.create_batch()
                for record in records:
                    if batch.append(key=record.key, value=record.value, timestamp=record.at_ms) is None:
                        await producer.send_batch(batch, topic, partition=number)
                        batch = producer.create_batch()
                        batch.append(key=record.key, value=record.value, timestamp=record.at_ms)
                if batch.record_count():
                    await producer.send_batch(batch, topic, partition=number)
            await asyncio.sleep(SENT_EVERY_S)
    finally:
        await producer.stop()


def main() -> int:
    """Measure, simulate, and print both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--turns-per-second", type=float, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    brokers = os.environ.get("STREAMPROC_BROKERS")
    if not brokers:
        print("No Kafka: set STREAMPROC_BROKERS, by `make kafka-start` for example", file=sys.stderr)
        return 2
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    settings = load_settings(brokers=brokers, topic_prefix=f"bench-{os.getpid()}-takeover", partitions=PARTITIONS)
    most = uvloop.run(most_per_s(settings, 20 * int(options.turns_per_second)))
    found = uvloop.run(measure(settings, options.turns_per_second, options.workers))
    detected_s = settings.session_timeout_s + REBALANCE_S
    simulated = simulate_takeover(
        PARTITIONS, options.workers, 1, options.turns_per_second, most, detected_s, recovery_s=0
    )
    print(f"one worker steps {most:,.0f} of these turns/s; {options.turns_per_second:,.0f} arrive; one of "
          f"{options.workers} workers is killed")  # fmt: skip
    for name, one in (("measured", found), ("simulated", simulated)):
        until = "never" if one.caught_up_s is None else f"{one.caught_up_s:.1f} s"
        print(f"{name:<10} turns wait for up to {one.worst_delay_s:.1f} s; over after {until}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
