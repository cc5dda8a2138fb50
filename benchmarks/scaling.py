"""One, two and four workers of one group on one machine, and what `streamproc plan` extrapolates from.

The workers join an empty topic, are frozen, and go on together when the log is complete, so that neither their start
nor the writing of the log counts. Each time, their decisions and states are checked as in `worker_speed`. The processor
time of the broker is read from ``/proc``; the broker, the workers and this process share the cores.

A second log has many runs that take a turn rarely, as in a large fleet, so that few turns share a written state. The
bytes on the other topics are those of the first log. A turn that is published alone is measured by publishing, and the
start of a listener by starting one.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import AsyncExitStack, ExitStack
from itertools import cycle, islice
from statistics import median
from typing import Final, NamedTuple

from benchmarks.fleet_log import ACTIVE_RUNS_MAX, FleetLog, Record, fleet_log, partition_of
from benchmarks.kafka_log import consumer, counting, fill, fill_topic, own_topics, read_all
from benchmarks.machine import broker_pid
from benchmarks.sizes import Sizes
from benchmarks.table import BenchmarkDefect, Row, shown
from benchmarks.worker_process import Group, cpu_s, worker
from benchmarks.worker_speed import all_committed, last_stored_ms, same_decisions, same_states, watch
from streamproc import HaltListener, TurnPublisher
from streamproc.core.status import encode_status
from streamproc.model.controls import RunStatus
from streamproc.model.log_time import rfc3339
from streamproc.model.raw_events import RawEvent
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file
from streamproc.settings import Settings

WORKERS: Final = (1, 2, 4)
PARTITIONS: Final = 8
ROUNDS_MAX: Final = 2  # each round starts seven workers
LOG_AGE_MS: Final = 600_000  # the log lies in the past, but within the topic's retention
SESSION_S: Final = 60.0  # a frozen worker keeps its partitions for as long
READY_S: Final = 90.0
READY: Final = re.compile(r"ready partitions=([\d,]+|-)")
AGENTS: Final = 8  # publishers that publish turns alone, at the same time
ALONE: Final = 2_000  # turns of each, at most; the first half is not measured: the broker compiles itself meanwhile
START_S: Final = 120.0  # of a listener


class Together(NamedTuple):
    """What some workers took for a log: events per second, and microseconds of processor time for each event."""

    per_s: float
    workers_us: float
    broker_us: float | None  # None if the broker runs elsewhere
    state_sizes: list[int]
    changelog_bytes: int

    @property
    def broker_cores(self) -> float | None:
        """The share of the broker, in cores."""
        return None if self.broker_us is None else self.broker_us * self.per_s / 1e6


class Published(NamedTuple):
    """What the broker stores: decisions for 1 000 turns, bytes of decisions and of statuses for each turn, and bytes
    of one status."""

    decisions: float
    control: float
    statuses: float
    status: float


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure the groups of workers, the wide log, and the bytes of the topics."""
    settings = settings.model_copy(update={"partitions": PARTITIONS, "timestamp_type": "CreateTime"})
    start_ms = int(time.time() * 1000) - LOG_AGE_MS
    log = fleet_log(sizes.log_turns, start_ms, PARTITIONS)
    rounds: list[dict[int, Together]] = []
    for number in range(min(ROUNDS_MAX, sizes.kafka_rounds)):
        found = {}
        for count in WORKERS:
            found[count], published = await _together(settings, f"{number}-{count}", log, count)
        rounds.append(found)
    wide_log = fleet_log(sizes.log_turns, start_ms, PARTITIONS, wide=sizes.wide_runs)
    wide, _ = await _together(settings, "wide", wide_log, 1)
    alone_bytes, alone_us = await _alone(settings, min(ALONE, sizes.log_turns))
    statuses_per_s = await _listener_start(settings, sizes.recovered_runs)
    return [
        *_scaling(rounds, log),
        *_states(rounds[0][1], log, "scaling.narrow", ACTIVE_RUNS_MAX),
        *_wide(wide, wide_log, sizes.wide_runs, median(found[1].workers_us for found in rounds)),
        *_bytes(published, alone_bytes),
        Row(
            "scaling.listener", "listener, statuses read at its start", statuses_per_s, "records/s",
            note=f"{shown(sizes.recovered_runs)} runs",
        ),
        *_broker([found[1] for found in rounds], log, alone_us),
    ]  # fmt: skip


async def _together(settings: Settings, name: str, log: FleetLog, count: int) -> tuple[Together, Published]:
    """Let workers process the log from an empty group on. Raises `BenchmarkDefect` if they did not process all."""
    prefix = f"{settings.topic_prefix}-{name}"
    own = settings.model_copy(update={"topic_prefix": prefix, "session_timeout_s": SESSION_S})
    pid = broker_pid(settings.brokers)
    async with own_topics(own):
        with ExitStack() as stack:
            named = (own.model_copy(update={"instance": f"scaling-{number}"}) for number in range(count))
            group = Group([stack.enter_context(worker(one)) for one in named])
            async with consumer(own, own.topic("control")) as reader:
                await ready(group, own.partitions)
                for member in group.members:
                    member.pause()
                try:
                    await fill(own, log)
                    before = group.cpu_s(), cpu_s(pid) if pid else 0.0
                finally:
                    for member in group.members:
                        member.go_on()
                watched = await watch(reader, group, log)
            await all_committed(own, group)
            after = group.cpu_s(), cpu_s(pid) if pid else 0.0
            last_ms = await last_stored_ms(own)
        same_decisions(watched, log)
        sizes, changelog_bytes = await same_states(own, log)
        published = await _published(own, sum(log.turns_of.values()))
    seconds = (max(last_ms, *watched.ended_ms) - min(watched.began_ms)) / 1000
    workers_us, broker_us = ((after[place] - before[place]) / log.records * 1e6 for place in (0, 1))
    per_s = log.measured_records / seconds
    return Together(per_s, workers_us, broker_us if pid else None, sizes, changelog_bytes), published


async def ready(group: Group, partitions: int) -> None:
    """Wait until each worker has partitions, and all together have each once."""
    async with asyncio.timeout(READY_S):
        while True:
            group.check()
            last = [(READY.findall(member.stderr()) or ["-"])[-1] for member in group.members]
            taken = [number for one in last if one != "-" for number in one.split(",")]
            if "-" not in last and sorted(map(int, taken)) == list(range(partitions)):
                return
            await asyncio.sleep(0.1)


async def _published(settings: Settings, turns: int) -> Published:
    """Return what the broker stores on the topics `control` and `runs`."""
    found = {}
    for role in ("control", "runs"):
        with counting() as stored:
            async for _ in read_all(settings, settings.topic(role)):
                pass
        found[role] = stored
    control, runs = found["control"], found["runs"]
    return Published(
        control.records / turns * 1_000, control.batch_bytes / turns, runs.batch_bytes / turns,
        runs.batch_bytes / max(1, runs.records),
    )  # fmt: skip


async def _alone(settings: Settings, count: int) -> tuple[float, float | None]:
    """Publish turns in requests of their own. Return the bytes that the broker stores for each, and its processor time
    in microseconds."""
    own = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-alone"})
    pid = broker_pid(settings.brokers)
    with trajectory_file() as path:
        raws = list(islice(cycle([line.raw for line in Source(path)]), count))
    warm, measured = raws[: len(raws) // 2], raws[len(raws) // 2 :]
    async with own_topics(own):
        async with AsyncExitStack() as stack:
            agents = [await stack.enter_async_context(TurnPublisher(settings=own)) for _ in range(AGENTS)]
            await asyncio.gather(*(_one_by_one(agent, warm) for agent in agents))
            before = cpu_s(pid) if pid else 0.0
            await asyncio.gather(*(_one_by_one(agent, measured) for agent in agents))
            taken = cpu_s(pid) - before if pid else None
        with counting() as stored:
            async for _ in read_all(own, own.topic("turns")):
                pass
    if stored.records != AGENTS * len(raws):
        raise BenchmarkDefect(f"published {AGENTS * len(raws)} turns alone, but {stored.records} are in the log")
    return stored.batch_bytes / stored.records, None if taken is None else taken / (AGENTS * len(measured)) * 1e6


async def _one_by_one(turns: TurnPublisher, raws: list[RawEvent]) -> None:
    for raw in raws:
        await turns.send(raw)
        if not await turns.flush(READY_S):
            raise BenchmarkDefect("the broker acknowledged no turn")


async def _listener_start(settings: Settings, runs: int) -> float:
    """Return how many statuses a second a listener reads at its start."""
    own = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-listener"})
    now_ms = int(time.time() * 1000)
    statuses: list[list[Record]] = [[] for _ in range(own.partitions)]
    for number in range(runs):
        name = f"finished-run-{number:08d}"
        status = RunStatus(
            run_id=name, status="finished", severity="info", workflow="repair", turns=29, badge="Loop 1/8",
            total_tokens=120_000, cost_usd_micro=450_000, at=rfc3339(now_ms), partition=0, offset=number,
        )  # fmt: skip
        statuses[partition_of(name, own.partitions)].append(Record(name.encode(), encode_status(status), now_ms))
    async with own_topics(own):
        await fill_topic(own, own.topic("runs"), statuses)
        began = time.monotonic()
        async with HaltListener(settings=own, start_timeout_s=START_S):
            return runs / (time.monotonic() - began)


def _scaling(rounds: list[dict[int, Together]], log: FleetLog) -> list[Row]:
    """Return a row for each number of workers: turns per second, beside as many times those of one worker."""
    found = []
    for count in WORKERS:
        ours = [one[count] for one in rounds]
        best = median(one.per_s for one in ours) * log.turn_share
        single = median(one[1].per_s for one in rounds) * log.turn_share
        what = "one worker" if count == 1 else f"{count} workers"
        beside: tuple[str, float | None, float | None] = ("", None, None)
        if count > 1:
            efficiency = median(one[count].per_s / one[1].per_s for one in rounds) / count
            beside = f"{count} times one worker", count * single, efficiency
        found.append(Row(f"scaling.{count}", f"{what} on this machine", best, "turns/s", *beside, note=_cores(ours)))
    single_us = median(one[1].workers_us for one in rounds)
    found.append(Row("scaling.cpu.1", "one worker, processor time per event", single_us, "µs"))
    for count in WORKERS[1:]:
        taken = median(one[count].workers_us for one in rounds)
        ratio = median(one[count].workers_us / one[1].workers_us for one in rounds)
        what = f"{count} workers, processor time of all of them per event"
        found.append(Row(f"scaling.cpu.{count}", what, taken, "µs", "one worker", single_us, ratio))
    return found


def _cores(ours: list[Together]) -> str:
    """Say how many cores the workers and the broker took."""
    workers = median(one.workers_us * one.per_s / 1e6 for one in ours)
    brokers = [one.broker_cores for one in ours if one.broker_cores is not None]
    broker = f"the broker {median(brokers):.2f}" if brokers else "the broker runs elsewhere"
    return f"workers {workers:.2f}, {broker} of {os.cpu_count()} cores"


def _states(one: Together, log: FleetLog, name: str, runs: int) -> list[Row]:
    """Return what a written state is worth in one of the logs."""
    turns, states = sum(log.turns_of.values()), len(one.state_sizes)
    what = f"worker, {shown(runs)} runs that take turns"
    return [
        Row(f"{name}.states", f"{what}, turns per written state", turns / states, "turns"),
        Row(
            f"{name}.state", f"{what}, changelog per written state, as stored by the broker",
            one.changelog_bytes / states, "bytes", note=f"{sum(one.state_sizes) / states:.0f} before compression",
        ),
    ]  # fmt: skip


def _wide(wide: Together, log: FleetLog, runs: int, single_us: float) -> list[Row]:
    what = f"worker, {shown(runs)} runs that take turns"
    return [
        Row("scaling.wide", f"{what}, one worker", wide.per_s * log.turn_share, "turns/s", note=_cores([wide])),
        Row(
            "scaling.wide.cpu", f"{what}, processor time per event", wide.workers_us, "µs",
            f"{shown(ACTIVE_RUNS_MAX)} runs", single_us,
        ),
        *_states(wide, log, "scaling.wide", runs),
    ]  # fmt: skip


def _bytes(published: Published, alone: float) -> list[Row]:
    return [
        Row("scaling.turn", "turns topic, a turn that is published alone, as stored by the broker", alone, "bytes"),
        Row("scaling.decisions", "decisions per 1 000 turns of the samples", published.decisions, "decisions"),
        Row("scaling.control", "control topic per turn, as stored by the broker", published.control, "bytes"),
        Row("scaling.statuses", "runs topic per turn, as stored by the broker", published.statuses, "bytes"),
        Row("scaling.status", "runs topic, status of a run, as stored by the broker", published.status, "bytes"),
    ]


def _broker(ones: list[Together], log: FleetLog, alone_us: float | None) -> list[Row]:
    """Return the broker's processor time, if it runs on this machine."""
    taken = [one.broker_us for one in ones if one.broker_us is not None]
    if not taken or alone_us is None:
        return []
    return [
        Row(
            "scaling.broker.worker", "broker, processor time per turn for a worker: fetches, states, decisions",
            median(taken) / log.turn_share, "µs",
        ),
        Row(
            "scaling.broker.alone", "broker, processor time for a turn that is published alone, without replicas",
            alone_us, "µs",
        ),
    ]  # fmt: skip
