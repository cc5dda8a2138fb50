"""A cold start with many runs: how fast a worker takes them from its changelog, and how much memory they take.

The changelog is filled with real states, as the worker writes them, one for each run. Then a worker starts with
nothing, recovers all of them, and takes in a turn of as many runs as it keeps decoded, and of some more. Its recovery
is timed by its own log line, from the first records that come to the last; stock Faust's in the same way, on the first
tenth of the same records. That all was recovered is proved by the states that it writes then.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

from benchmarks.fleet_log import Record, partition_of
from benchmarks.kafka_log import committed, end_offsets, fill_topic, make, own_topics, read_all
from benchmarks.sizes import Sizes
from benchmarks.state_size import real_states
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.worker_process import Process, worker
from streamproc.kafka import topics
from streamproc.model import wire
from streamproc.model.wire import WIRE_VERSION, Turn
from streamproc.settings import Settings

PER_S_MIN: Final = Aim("≥", 100_000)
STOCK_RATIO_MIN: Final = Aim("≥", 10)
RESIDENT_MAX_MIB: Final = Aim("≤", 2_048)
WOKEN_SHARE: Final = 8  # one run of so many takes a turn: of 200 000 runs more than a worker keeps decoded
STOCK_SHARE: Final = 10  # stock Faust gets one record of so many: it would take a minute for all
TIMEOUT_S: Final = 120.0
TELLS: Final = re.compile(r"recovered records=(\d+) s=([\d.]+)")

Partitions = list[list[Record]]


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """The recovery's part of the table."""
    states, turns_before = _states(sizes.recovered_runs, settings.partitions)
    async with own_topics(settings):
        await fill_topic(settings, topics.changelog_topic(settings), states)
        await fill_topic(settings, settings.topic("turns"), _turns(sizes.recovered_runs, settings.partitions))
        per_s, peak = await _worker(settings, sizes.recovered_runs)
        await _same_states(settings, turns_before, sizes.recovered_runs)
        stock_per_s = await _stock(settings, [records[: len(records) // STOCK_SHARE] for records in states])
    what = f"recovery of {sizes.recovered_runs:,} runs after a cold start".replace(",", " ")
    return [
        Row("recovery", what, per_s, "records/s", aim=PER_S_MIN),
        Row(
            "recovery.stock", what, per_s, "records/s", "stock Faust, first tenth of it", stock_per_s,
            aim=STOCK_RATIO_MIN,
        ),
        Row("recovery.resident", "peak of that worker's resident memory", peak / 2**20, "MiB", aim=RESIDENT_MAX_MIB),
    ]  # fmt: skip


def _name(number: int) -> str:
    return f"recovered-run-{number:08d}"


def _woken(runs: int) -> int:
    return runs // WOKEN_SHARE


def _states(runs: int, partitions: int) -> tuple[Partitions, list[int]]:
    """Records of a changelog, and how many turns the states have that they repeat, in turn."""
    from streamproc.worker.codec import pack

    samples = real_states()
    for state in samples:
        state.offset = 0
    packed = [pack(state, None) for state in samples]
    found: Partitions = [[] for _ in range(partitions)]
    now_ms = int(time.time() * 1000)
    for number in range(runs):
        name = _name(number)
        record = Record(name.encode(), packed[number % len(packed)], now_ms)
        found[partition_of(name, partitions)].append(record)
    return found, [state.turns for state in samples]


def _turns(runs: int, partitions: int) -> Partitions:
    """A turn of some of the runs; before them in each partition one of a stranger, that the states have applied."""
    now_ms = int(time.time() * 1000)
    found: Partitions = [[] for _ in range(partitions)]
    for number in range(_woken(runs)):
        name = _name(number)
        mine = found[partition_of(name, partitions)]
        if not mine:
            mine.append(_turn(name, f"{name}:seen", now_ms))
        mine.append(_turn(name, f"{name}:new", now_ms))
    return found


def _turn(run_id: str, event_id: str, at_ms: int) -> Record:
    turn = Turn(w=WIRE_VERSION, run_id=run_id, node="coder", event_id=event_id, at=at_ms)
    return Record(run_id.encode(), wire.encode(turn), at_ms)


async def _worker(settings: Settings, runs: int) -> tuple[float, float]:
    """Records a second, and the peak of resident memory in bytes, of a worker that starts with nothing."""
    with worker(settings) as process:
        ends = await end_offsets(settings, settings.topic("turns"))
        async with asyncio.timeout(TIMEOUT_S):
            while await committed(settings, settings.topic("turns")) != ends:
                process.check()
                await asyncio.sleep(0.1)
        said, peak = process.said(), process.peak_bytes()
    told = TELLS.search(said)
    if told is None or int(told[1]) != runs or f" runs={runs} " not in said:
        raise BenchmarkDefect(f"the worker did not recover {runs} runs:\n{said}")
    return runs / float(told[2]), peak


async def _same_states(settings: Settings, turns_before: list[int], runs: int) -> None:
    """Every run that took a turn must have gone on from where it was."""
    from streamproc.worker.codec import unpack

    last: dict[str, bytes] = {}
    async for records in read_all(settings, topics.changelog_topic(settings)):
        last |= {(record.key or b"").decode(): record.value or b"" for record in records}
    wrong = sum(
        unpack(last[_name(number)])[0].turns != turns_before[number % len(turns_before)] + 1
        for number in range(_woken(runs))
    )
    if wrong:
        raise BenchmarkDefect(f"{wrong} of {_woken(runs)} recovered runs did not go on from where they were")


async def _stock(settings: Settings, states: Partitions) -> float:
    """Records a second of stock Faust."""
    mine = settings.model_copy(update={"group": f"{settings.topic_prefix}-stock"})
    changelog = f"{mine.worker_group}-runs-changelog"
    await make(mine, changelog)
    await fill_topic(mine, changelog, states)
    with Process(mine, "benchmarks.stock_recovery") as process:
        found = await process.answer(TIMEOUT_S)
    if found["runs"] != sum(map(len, states)):
        raise BenchmarkDefect(f"stock Faust recovered {found['runs']} runs of {sum(map(len, states))}")
    return float(found["timed"]) / float(found["seconds"])
