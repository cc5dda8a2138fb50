"""How long it takes to stop a tree of agents, from `kill --session` to the halt of its last run by the workers, and
what the table of sessions costs a worker."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.kafka_log import committed, end_offsets, own_topics
from benchmarks.latency import ANSWER_TIMEOUT_S, START_TIMEOUT_S
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.worker_process import worker
from streamproc import HaltListener, TurnPublisher
from streamproc.fleet.issuing import issue_command
from streamproc.settings import Settings

COST_MAX: Final = Aim("≤", 1.05)
FAMILY: Final = 20  # runs of a session, for the cost
MORE_ROUNDS: Final = 4  # than other parts: a round takes 2 s, and single ones differ by a tenth
TURNS: Final = 50  # of each of these runs
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
    """Compare the processor time of a worker for runs that are born into sessions with that for the same runs alone."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(MORE_ROUNDS * sizes.kafka_rounds):
        for together in (True, False) if number % 2 else (False, True):
            prefix = f"{settings.topic_prefix}-cost-{number}-{together}".lower()
            own = settings.model_copy(update={"topic_prefix": prefix})
            async with own_topics(own):
                found[together].append(await _processor_us(own, sizes.probes, together=together))
    if not all(found[False]):
        raise BenchmarkDefect("the turns are too few for a figure of processor time")
    ratio = median(mine / alone for mine, alone in zip(found[True], found[False], strict=True))
    what = f"worker, processor time per turn of {sizes.probes} runs in sessions of {FAMILY}, births and ends included"
    return Row(
        "tree.cost", what, median(found[True]), "µs", "the same runs without sessions", median(found[False]), ratio,
        COST_MAX,
    )  # fmt: skip


async def _processor_us(settings: Settings, runs: int, *, together: bool) -> float:
    with worker(settings) as process:
        await _caught_up(settings)
        before_s = process.cpu_s()
        async with TurnPublisher(settings=settings) as turns:
            for first in range(0, runs, FAMILY):
                family = range(first, min(first + FAMILY, runs))
                for number in family:
                    parent = f"run-{first}" if together and number > first else ""
                    session = f"s{first}" if together else ""
                    await turns.run_started(run_id=f"run-{number}", session_id=session, parent_run_id=parent)
                for turn in range(TURNS):
                    for number in family:
                        await turns.turn(run_id=f"run-{number}", node="agent", output=f"{number} has done {turn}")
                for number in family:
                    await turns.run_finished(run_id=f"run-{number}", status="done")
            await turns.flush(ANSWER_TIMEOUT_S)
        await _caught_up(settings)
        return (process.cpu_s() - before_s) / (runs * TURNS) * 1e6


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
        began = perf_counter()
        await issue_command(settings, "STOP", f"session:{SESSION}", "the benchmark", "it measures the stop")
        async with asyncio.timeout(START_TIMEOUT_S):
            while halts.halted_runs < count:
                await asyncio.sleep(0.001)
        return perf_counter() - began
