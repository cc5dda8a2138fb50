"""What metrics cost a worker: turns per second without them, with them while they are scraped, and before.

    STREAMPROC_BROKERS=127.0.0.1:9092 python -m benchmarks.metrics_cost [--rounds N] [--turns N] [--before CHECKOUT]

All read the same log from the same Kafka, one after the other in each round. The ratios are those of a round, and
their median is shown with all of them. `--before` is another checkout of this project, with its core built alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import time
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

from benchmarks.fleet_log import fleet_log
from benchmarks.kafka_log import fill, own_topics
from benchmarks.throughput import LOG_AGE_MS
from benchmarks.worker_speed import Speed, worker_speed
from deploy.local.kafka import free_port
from streamproc.settings import load_settings

SCRAPES_EVERY_S = 1.0  # Prometheus asks every 15 s or more


async def measure(rounds: int, turns: int, before: str) -> None:
    """Measure, and print every round and the medians."""
    settings = load_settings(topic_prefix=f"metrics-cost-{os.getpid()}", session_timeout_s=6.0)
    log = fleet_log(turns, int(time.time() * 1000) - LOG_AGE_MS, settings.partitions)
    speeds: defaultdict[str, list[Speed]] = defaultdict(list)
    async with own_topics(settings):
        await fill(settings, log)
        for number in range(rounds):
            kinds = ["off", "on", *(["before"] if before else [])]
            for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
                address = f"127.0.0.1:{free_port()}" if kind == "on" else ""
                options = {"STREAMPROC_METRICS": address} if address else {}
                if kind == "before":
                    options["checkout"] = before
                async with scraped(address) as scrapes:
                    measured = await worker_speed(settings, log, f"{number}-{kind}", **options)
                speeds[kind].append(measured.speed)
                note = f", {len(scrapes)} scrapes" if address else ""
                print(f"{number} {kind}: {measured.speed.per_s:.0f} events/s, {measured.speed.cpu_us:.2f} µs{note}")
    for one, other in (("on", "off"), ("off", "before")):
        if speeds[other]:
            compare(one, other, speeds[one], speeds[other])


def compare(one: str, other: str, ours: list[Speed], theirs: list[Speed]) -> None:
    """Print the ratios of two kinds, in throughput and in processor time."""
    pairs = list(zip(ours, theirs, strict=True))
    for what, ratios in (
        ("events/s", [our.per_s / their.per_s for our, their in pairs]),
        ("processor time per event", [our.cpu_us / their.cpu_us for our, their in pairs]),
    ):
        print(f"{one} / {other}, {what}: {median(ratios):.3f} ({' '.join(f'{ratio:.3f}' for ratio in ratios)})")


@asynccontextmanager
async def scraped(address: str) -> AsyncIterator[list[int]]:
    """Ask an address for metrics while the body runs; gives the sizes of the answers. No address: do nothing."""
    sizes: list[int] = []

    async def scrape() -> None:
        while True:
            with contextlib.suppress(OSError):
                sizes.append(await asyncio.to_thread(_size, f"http://{address}/metrics"))
            await asyncio.sleep(SCRAPES_EVERY_S)

    task = asyncio.create_task(scrape()) if address else None
    yield sizes
    if task is not None:
        task.cancel()


def _size(url: str) -> int:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return len(answer.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=120_000)
    parser.add_argument("--before", default="", metavar="CHECKOUT")
    options = parser.parse_args()
    asyncio.run(measure(options.rounds, options.turns, options.before))
