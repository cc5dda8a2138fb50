"""`replay` of a fleet's log on Kafka: the records are read, checked and decided as the command does it.

The log is written several times, with other run ids, so that the topic has the wanted number of turns.
"""

from __future__ import annotations

import time
from typing import Final

from benchmarks.fleet_log import FleetLog, Record, fleet_log, partition_of
from benchmarks.kafka_log import fill_topic, own_topics
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from streamproc.core.compiled import core_kind
from streamproc.kafka.reading import open_topic
from streamproc.policy import load_policy
from streamproc.replay.log import LogReplay
from streamproc.settings import Settings

PER_S_MIN: Final = Aim("≥", 1_000_000 / 60)  # a million turns in a minute
COPIES: Final = 8
LOG_AGE_MS: Final = 600_000  # the log lies in the past, but within the topic's retention


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure one replay of the whole topic."""
    log = fleet_log(sizes.log_turns, int(time.time() * 1000) - LOG_AGE_MS, settings.partitions)
    async with own_topics(settings):
        topic, seconds = settings.topic("turns"), 0.0
        copies = [_copied(log, number) for number in range(COPIES)]
        await fill_topic(settings, topic, [[r for copy in copies for r in copy[n]] for n in range(settings.partitions)])
        replay = LogReplay(load_policy().engine(), event_bytes_max=settings.event_bytes_max)
        decisions, began = 0, time.perf_counter()
        async with open_topic(settings, "turns") as reader:
            async for batch in reader.batches():
                decisions += sum(1 for _ in replay.decide(batch))
        seconds = time.perf_counter() - began
    turns = sum(replay.turns.values())
    if turns != COPIES * sum(log.turns_of.values()) or decisions != COPIES * len(log.decisions):
        raise BenchmarkDefect(f"the replay took {turns} turns and decided {decisions} times: not what the log holds")
    return [
        Row(
            "replay.kafka", f"replay of a log on Kafka, one core, {core_kind()}", turns / seconds, "turns/s",
            aim=PER_S_MIN, note=f"{turns:,} turns in {seconds:.0f} s".replace(",", " "),
        )
    ]  # fmt: skip


def _copied(log: FleetLog, number: int) -> list[list[Record]]:
    """Return the records with other run ids, each in the partition of its run: elsewhere they are refused."""
    found: list[list[Record]] = [[] for _ in log.partitions]
    for records in log.partitions:
        for record in records:
            renamed = _renamed(record, number)
            found[partition_of(renamed.key.decode(), len(found))].append(renamed)
    return found


def _renamed(record: Record, number: int) -> Record:
    key = record.key + b"~%d" % number
    return Record(key, record.value.replace(b'"run_id":"' + record.key, b'"run_id":"' + key, 1), record.at_ms)
