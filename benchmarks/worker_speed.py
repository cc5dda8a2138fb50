"""One worker on a real Kafka, timed and checked by the records that it writes.

The clock runs from the decision on the first marker (after a warm-up) to the last state in the changelog. Then all
decisions and states are compared with those of the engine on the same log; a difference is an error.
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
from benchmarks.worker_process import WORKER, Group, Process
from streamproc.kafka import topics
from streamproc.settings import Settings

SILENCE_MAX_S: Final = 60.0


class Speed(NamedTuple):
    """Events per second, and microseconds of processor time per event."""

    per_s: float
    cpu_us: float


class Measured(NamedTuple):
    """A worker's speed, the size of each state that it wrote, and the bytes that the broker stores for them."""

    speed: Speed
    sizes: list[int]
    batch_bytes: int


@dataclass
class Watched:
    """The decisions on the control topic: ids, and the markers' times in ms of the worker's clock."""

    ids: list[str] = field(default_factory=list)
    began_ms: list[int] = field(default_factory=list)
    ended_ms: list[int] = field(default_factory=list)
    cpu_began_s: float = 0.0
    cpu_ended_s: float = 0.0


async def worker_speed(settings: Settings, log: FleetLog, group: str, *command: str, **environment: str) -> Measured:
    """Let a worker (another one: with its `command`) process the log in a consumer group of this name. Raises
    `BenchmarkDefect` if it did not process all of it."""
    own = settings.model_copy(update={"group": f"{settings.topic_prefix}-round-{group}"})
    await topics.apply(own)
    async with consumer(settings, settings.topic("control")) as reader:
        await reader.seek_to_end()
        for place in reader.assignment():
            await reader.position(place)
        with Process(own, *(command or WORKER), **environment) as process:
            watched = await watch(reader, process, log)
            await all_committed(own, process)
            last_ms = await last_stored_ms(own)
    same_decisions(watched, log)
    seconds = (max(last_ms, *watched.ended_ms) - min(watched.began_ms)) / 1000
    cpu_us = (watched.cpu_ended_s - watched.cpu_began_s) / log.measured_records * 1e6
    return Measured(Speed(log.measured_records / seconds, cpu_us), *await same_states(own, log))


async def watch(reader: AIOKafkaConsumer, process: Process | Group, log: FleetLog) -> Watched:
    """Read until the decisions on all end markers have arrived."""
    watched = Watched()
    wanted = sum(marker == END for marker in log.markers.values())
    last_read = time.monotonic()
    while len(watched.ended_ms) < wanted:
        process.check()
        if time.monotonic() - last_read > SILENCE_MAX_S:
            raise BenchmarkDefect(f"the worker made no decision for {SILENCE_MAX_S:g} s:\n{process.stderr()}")
        for records in (await reader.getmany(timeout_ms=200)).values():
            last_read = time.monotonic()
            for record in records:
                _note(watched, record, process, log)
    return watched


def _note(watched: Watched, record: Any, process: Process | Group, log: FleetLog) -> None:
    control = dict(record.headers)["ce_id"].decode()
    watched.ids.append(control)
    marker = log.markers.get(control)
    if marker == BEGIN:
        watched.cpu_began_s = watched.cpu_began_s or process.cpu_s()
        watched.began_ms.append(record.timestamp)
    elif marker == END:
        watched.cpu_ended_s = process.cpu_s()
        watched.ended_ms.append(record.timestamp)


async def all_committed(settings: Settings, process: Process | Group) -> None:
    ends = await end_offsets(settings, settings.topic("turns"))
    async with asyncio.timeout(SILENCE_MAX_S):
        while await committed(settings, settings.topic("turns")) != ends:
            process.check()
            await asyncio.sleep(0.1)


async def last_stored_ms(settings: Settings) -> int:
    """Return when the last state was written, by the worker's clock."""
    async with consumer(settings, topics.changelog_topic(settings)) as reader:
        ends = await reader.end_offsets(list(reader.assignment()))
        for place, end in ends.items():
            reader.seek(place, max(0, end - 1))
        return max([(await reader.getone(place)).timestamp for place, end in ends.items() if end])


def same_decisions(watched: Watched, log: FleetLog) -> None:
    """Check that the ids are those of the engine's decisions on the log."""
    missing, extra = log.decisions.keys() - set(watched.ids), set(watched.ids) - log.decisions.keys()
    if missing or extra or len(watched.ids) != len(log.decisions):
        raise BenchmarkDefect(
            f"the worker's decisions differ from those of the engine over the same log: {len(missing)} missing, "
            f"{len(extra)} extra, {len(watched.ids)} published, {len(log.decisions)} expected"
        )


async def same_states(settings: Settings, log: FleetLog) -> tuple[list[int], int]:
    """Check that the last state of each run includes all its turns. Return the sizes of all states in the changelog,
    and the bytes that the broker stores for them."""
    from streamproc.worker.codec import decode_run

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
        raise BenchmarkDefect(f"counted the bytes of {stored.records} records, but read {read}")
    turns = {run_id: decode_run(raw)[0].turns for run_id, raw in last.items()}
    if turns != log.turns_of:
        wrong = sum(turns.get(run_id) != count for run_id, count in log.turns_of.items())
        raise BenchmarkDefect(f"the changelog is incomplete: {wrong} of {len(log.turns_of)} runs differ")
    return sizes, stored.batch_bytes
