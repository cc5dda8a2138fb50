"""How long it takes to stop a tree of agents: from `kill --session` to the halt of its last run, by the workers."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from benchmarks.kafka_log import committed, end_offsets, own_topics
from benchmarks.latency import ANSWER_TIMEOUT_S, START_TIMEOUT_S
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, Row
from benchmarks.worker_process import worker
from streamproc import HaltListener, TurnPublisher
from streamproc.fleet.issuing import issue_command
from streamproc.settings import Settings

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
    return [Row("tree.stop", what, seconds, "s", aim=SECONDS_MAX)]


async def _stop(settings: Settings, count: int) -> float:
    async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
        for number in range(count):
            parent = f"run-{(number - 1) // CHILDREN}" if number else ""
            await turns.run_started(run_id=f"run-{number}", session_id=SESSION, parent_run_id=parent)
        await turns.flush(ANSWER_TIMEOUT_S)
        topic = settings.topic("turns")
        async with asyncio.timeout(START_TIMEOUT_S):
            while await committed(settings, topic) != await end_offsets(settings, topic):
                await asyncio.sleep(0.1)
        began = perf_counter()
        await issue_command(settings, "STOP", f"session:{SESSION}", "the benchmark", "it measures the stop")
        async with asyncio.timeout(START_TIMEOUT_S):
            while halts.halted_runs < count:
                await asyncio.sleep(0.001)
        return perf_counter() - began
