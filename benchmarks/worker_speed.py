"""One worker on a real Kafka, timed by what it leaves there, and checked by it.

The clock runs from the decision about the first marker (past a warm-up) to the last state in the changelog. Then all
that the worker decided and all that it stored is compared with what the engine makes of the log; a difference is an
error, not a figure.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer

from benchmarks.fleet_log import BEGIN, END, FleetLog
from benchmarks.kafka_log import committed, consumer, counting, end_offsets, read_all
from benchmarks.table import BenchmarkDefect
from benchmarks.worker_process import Process, worker
from streamproc.kafka import topics
from streamproc.settings import Settings

SILENCE_MAX_S: Final = 60.0


class Speed(NamedTuple):
    """How fast a contender was: events a second, and microseconds of processor time an event."""

    per_s: float
    cpu_us: float


class Measured(NamedTuple):
    """A worker's speed, the size of each state that it wrote, and what the broker keeps of all of them, in bytes."""

    speed: Speed
    sizes: list[int]
    batch_bytes: int


@dataclass
class Watched:
    """What came on the control topic: ids, and the times of the markers' decisions, in ms of the worker's clock."""

    ids: list[str] = field(default_factory=list)
    began_ms: list[int] = field(default_factory=list)
    ended_ms: list[int] = field(default_factory=list)
    cpu_began_s: float = 0.0
    cpu_ended_s: float = 0.0


async def worker_speed(settings: Settings, log: FleetLog, group: str, *options: str, **environment: str) -> Measured:
    """Let a worker work through the log, as a group of its own of this name. Raises `BenchmarkDefect` where it did not
    do it all."""
    mine = settings.model_copy(update={"group": f"{settings.topic_prefix}-round-{group}"})
    await topics.apply(mine)
    async with consumer(settings, settings.topic("control")) as reader:
        await reader.seek_to_end()
        for place in reader.assignment():
            await reader.position(place)
        with worker(mine, *options, **environment) as process:
            watched = await _watch(reader, process, log)
            await _all_committed(mine, process)
            last_ms = await _last_stored_ms(mine)
    _same_decisions(watched, log)
    seconds = (max(last_ms, *watched.ended_ms) - min(watched.began_ms)) / 1000
    cpu_us = (watched.cpu_ended_s - watched.cpu_began_s) / log.measured_records * 1e6
    return Measured(Speed(log.measured_records / seconds, cpu_us), *await _same_states(mine, log))


async def _watch(reader: AIOKafkaConsumer, process: Process, log: FleetLog) -> Watched:
    """Listen until the decisions about all end markers are there."""
    watched = Watched()
    wanted = sum(marker == END for marker in log.markers.values())
    heard = time.monotonic()
    while len(watched.ended_ms) < wanted:
        process.check()
        if time.monotonic() - heard > SILENCE_MAX_S:
            raise BenchmarkDefect(f"the worker decided nothing for {SILENCE_MAX_S:g} s:\n{process.said()}")
        for records in (await reader.getmany(timeout_ms=200)).values():
            heard = time.monotonic()
            for record in records:
                _note(watched, record, process, log)
    return watched


def _note(watched: Watched, record: Any, process: Process, log: FleetLog) -> None:
    control = dict(record.headers)["ce_id"].decode()
    watched.ids.append(control)
    marker = log.markers.get(control)
    if marker == BEGIN:
        watched.cpu_began_s = watched.cpu_began_s or process.cpu_s()
        watched.began_ms.append(record.timestamp)
    elif marker == END:
        watched.cpu_ended_s = process.cpu_s()
        watched.ended_ms.append(record.timestamp)


async def _all_committed(settings: Settings, process: Process) -> None:
    ends = await end_offsets(settings, settings.topic("turns"))
    async with asyncio.timeout(SILENCE_MAX_S):
        while await committed(settings, settings.topic("turns")) != ends:
            process.check()
            await asyncio.sleep(0.1)


async def _last_stored_ms(settings: Settings) -> int:
    """When the last state was written, by the worker's clock."""
    async with consumer(settings, topics.changelog_topic(settings)) as reader:
        ends = await reader.end_offsets(list(reader.assignment()))
        for place, end in ends.items():
            reader.seek(place, max(0, end - 1))
        return max([(await reader.getone(place)).timestamp for place, end in ends.items() if end])


def _same_decisions(watched: Watched, log: FleetLog) -> None:
    """Every decision that the engine makes of the log, by id, and no other."""
    missing, extra = log.decisions.keys() - set(watched.ids), set(watched.ids) - log.decisions.keys()
    if missing or extra or len(watched.ids) != len(log.decisions):
        raise BenchmarkDefect(
            f"the worker's decisions differ from those of the engine over the same log: {len(missing)} missing, "
            f"{len(extra)} extra, {len(watched.ids)} told of {len(log.decisions)}"
        )


async def _same_states(settings: Settings, log: FleetLog) -> tuple[list[int], int]:
    """The sizes of all states in the changelog, of which the last of each run must have taken in all its turns; and
    what all of it takes."""
    from streamproc.worker.codec import unpack

    sizes: list[int] = []
    last: dict[str, bytes] = {}
    read = 0
    with counting() as stored:
        async for records in read_all(settings, topics.changelog_topic(settings)):
            read += len(records)
            for record in records:
                if record.key is not None and record.value is not None:
                    sizes.append(len(record.value))
                    last[record.key.decode()] = record.value
    if stored.records != read:
        raise BenchmarkDefect(f"bytes of {stored.records} records were counted, and {read} were read")
    turns = {run_id: unpack(raw)[0].turns for run_id, raw in last.items()}
    if turns != log.turns_of:
        wrong = sum(turns.get(run_id) != count for run_id, count in log.turns_of.items())
        raise BenchmarkDefect(f"the changelog has not all that happened: {wrong} runs of {len(log.turns_of)} differ")
    return sizes, stored.batch_bytes
