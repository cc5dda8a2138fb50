"""What current statuses cost a worker, and how old they are.

    STREAMPROC_BROKERS=127.0.0.1:9092 python -m benchmarks.activity_cost [--runs N] [--seconds S] [--rounds N]

Many runs take a turn every eight seconds, so that each is published in every interval. In each round a worker is
measured without the topic `activity` and with it: its processor time, as a share of one core. The age of what is shown
is the time from each turn to the first current status that contains it, by the broker's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from bisect import bisect_left
from collections import defaultdict
from statistics import mean
from typing import NamedTuple

from benchmarks.kafka_log import own_topics, read_all, remove
from benchmarks.table import BenchmarkDefect
from benchmarks.timing import percentile
from benchmarks.worker_process import Process, worker
from streamproc.fleet.record_signing import read_status
from streamproc.settings import Settings, load_settings
from streamproc.worker.limits import ACTIVITY_INTERVAL_S

WARM_UP_S = 15.0  # the worker joins, and each run has its first turns


class Cost(NamedTuple):
    """The share of a core, and, with the topic, statuses and bytes of their values a second, and ages in seconds."""

    core: float
    per_s: float = 0.0
    bytes_per_s: float = 0.0
    ages_s: tuple[float, ...] = ()


async def measure(settings: Settings, runs: int, seconds: float, *, published: bool) -> Cost:
    """Measure a worker with fresh topics."""
    async with own_topics(settings):
        if not published:
            await remove(settings, settings.topic("activity"))
        per_s = str(round(runs / ACTIVITY_INTERVAL_S))
        with worker(settings) as process, Process(settings, "benchmarks.background", per_s, str(runs)) as load:
            await asyncio.sleep(WARM_UP_S)
            before_s = process.cpu_s()
            await asyncio.sleep(seconds)
            core = (process.cpu_s() - before_s) / seconds
            load.check()
            process.check()
        if not published:
            return Cost(core)
        return await _published(settings, core)


async def _published(settings: Settings, core: float) -> Cost:
    """Read what was published: of each run, the offset that each status contains and when it was stored."""
    statuses: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    count = size = first_ms = last_ms = 0
    async for records in read_all(settings, settings.topic("activity")):
        for record in records:
            status = read_status(record.value)
            if status is None:
                raise BenchmarkDefect("a record of activity is no status")
            statuses[status.run_id].append((status.offset, record.timestamp))
            count, size = count + 1, size + len(record.value or b"")
            first_ms, last_ms = min(first_ms or record.timestamp, record.timestamp), max(last_ms, record.timestamp)
    ages_s, begun_ms = [], 0  # the worker joins at first
    async for records in read_all(settings, settings.topic("turns")):
        for record in records:
            of_run = statuses[(record.key or b"").decode()]
            at = bisect_left(of_run, (record.offset, 0))
            begun_ms = min(begun_ms or record.timestamp, record.timestamp)
            if at < len(of_run) and record.timestamp > begun_ms + WARM_UP_S * 1000:
                ages_s.append((of_run[at][1] - record.timestamp) / 1000)
    if not ages_s:
        raise BenchmarkDefect("no current status was published")
    lasted_s = (last_ms - first_ms) / 1000
    return Cost(core, count / lasted_s, size / lasted_s, tuple(ages_s))


async def main() -> None:
    """Measure, and print every round and the means."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.activity_cost", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shares: defaultdict[bool, list[float]] = defaultdict(list)
    for number in range(options.rounds):
        for published in (False, True) if number % 2 else (True, False):
            settings = load_settings(topic_prefix=f"activity-{os.getpid()}-{number}-{published}")
            cost = await measure(settings, options.runs, options.seconds, published=published)
            shares[published].append(cost.core)
            print(f"{number} {'with' if published else 'without'}: {cost.core:.1%} of a core", end="")
            if published:
                ages = [f"{percentile(list(cost.ages_s), share):.1f}" for share in (0.5, 0.99, 1.0)]
                print(f"; {cost.per_s:.0f} statuses/s, {cost.bytes_per_s / 1000:.0f} kB/s; age s {ages}", end="")
            print(flush=True)
    more = mean(shares[True]) - mean(shares[False])
    print(f"{options.runs} working runs: current statuses take {more:.2%} of a core")


if __name__ == "__main__":
    asyncio.run(main())
