"""How long it takes to stop a tree of agents, from `kill --session` to the halt of its last run by the workers, and
what the table of sessions costs a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.fleet_log import fleet_log
from benchmarks.kafka_log import committed, end_offsets, fill, own_topics
from benchmarks.latency import ANSWER_TIMEOUT_S, START_TIMEOUT_S
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, Row
from benchmarks.throughput import LOG_AGE_MS
from benchmarks.worker_process import worker
from benchmarks.worker_speed import worker_speed
from streamproc import HaltListener, TurnPublisher
from streamproc.detectors import DETECTORS
from streamproc.fleet.issuing import issue_command
from streamproc.settings import Settings

COST_MAX: Final = Aim("≤", 1.05)
FAMILY: Final = 20  # runs of a session, for the cost
MORE_ROUNDS: Final = 4  # than other parts: single ones differ by more than what is measured
SECONDS_MAX: Final = Aim("≤", 2.0)
CHILDREN: Final = 3  # of each run
SESSION: Final = "tree"


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure it for a tree with as many runs as the latency has probes."""
    own = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-tree"})
    async with own_topics(own):
        with worker(own):
            seconds = await _stop(own, sizes.probes)
    what = f"kill --session → the last of {sizes.probes} runs is halted"
    return [Row("tree.stop", what, seconds, "s", aim=SECONDS_MAX), await _cost(settings, sizes)]


async def _cost(settings: Settings, sizes: Sizes) -> Row:
    """Compare the processor time of a worker that watches trees with that of one whose policy turns all of it off, on
    the same log of a fleet."""
    start_ms = int(time.time() * 1000) - LOG_AGE_MS
    found: dict[str, list[float]] = {"standard": [], "unwatched": []}
    with _policy_without_trees() as without:
        policies = {"standard": "standard", "unwatched": without}
        logs = {
            name: fleet_log(sizes.log_turns, start_ms, settings.partitions, family=FAMILY, policy=policy)
            for name, policy in policies.items()
        }
        for number in range(MORE_ROUNDS * sizes.kafka_rounds):
            for name in sorted(policies, reverse=number % 2 == 0):
                prefix = f"{settings.topic_prefix}-{number}-{name}"  # statements of another round would be booked too
                own, log = settings.model_copy(update={"topic_prefix": prefix}), logs[name]
                async with own_topics(own):
                    await fill(own, log)
                    measured = await worker_speed(own, log, name, STREAMPROC_POLICY=policies[name])
                found[name].append(measured.speed.cpu_us / log.turn_share)
    watched, alone = found.values()
    ratio = median(mine / other for mine, other in zip(watched, alone, strict=True))
    what = f"worker, processor time per turn of runs in sessions of {FAMILY}, births and ends included"
    beside = "the same log, without the detectors and tables of trees"
    return Row("tree.cost", what, median(watched), "µs", beside, median(alone), ratio, COST_MAX)


@contextmanager
def _policy_without_trees() -> Iterator[str]:
    """Yield the path of the standard policy with the detectors of trees turned off."""
    off = ", ".join(f"{code}: false" for code in DETECTORS if code.startswith("TREE"))
    with TemporaryDirectory() as folder:
        file = Path(folder, "unwatched.yaml")
        file.write_text(f"name: unwatched\nversion: 1\npresets: [standard]\ndetectors: {{{off}}}\n")
        yield str(file)


async def _caught_up(settings: Settings) -> None:
    """Wait until a worker has read all turns, and all that it has sent itself."""
    async with asyncio.timeout(START_TIMEOUT_S):
        for name in ("turns", "spend", "turns"):
            topic = settings.topic(name)
            while await committed(settings, topic) != await end_offsets(settings, topic):
                await asyncio.sleep(0.1)


async def _stop(settings: Settings, count: int) -> float:
    async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
        for number in range(count):
            parent = f"run-{(number - 1) // CHILDREN}" if number else ""
            await turns.run_started(run_id=f"run-{number}", session_id=SESSION, parent_run_id=parent)
        await turns.flush(ANSWER_TIMEOUT_S)
        await _caught_up(settings)
        began = time.perf_counter()
        await issue_command(settings, "STOP", f"session:{SESSION}", "the benchmark", "it measures the stop")
        async with asyncio.timeout(START_TIMEOUT_S):
            while halts.halted_runs < count:
                await asyncio.sleep(0.001)
        return time.perf_counter() - began
