"""A cold start with many runs: how fast a worker recovers them from its changelog, and how much memory they take.

The changelog holds a real state for each run, as a worker writes it. A worker without local state recovers them all,
then processes a turn of one run in eight. Its log line gives the time of the recovery, from the first
records to the last. Stock Faust is timed the same way, on the first tenth of the records. The states that the worker
writes afterwards prove that it recovered every run.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

from benchmarks.fleet_log import Record, partition_of
from benchmarks.kafka_log import committed, create, end_offsets, fill_topic, own_topics, read_all
from benchmarks.sizes import Sizes
from benchmarks.state_size import real_states
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.worker_process import Process, worker
from streamproc.core.run_state import dump, load
from streamproc.kafka import topics
from streamproc.model import wire
from streamproc.model.wire import WIRE_VERSION, Turn
from streamproc.settings import Settings

PER_S_MIN: Final = Aim("≥", 250_000)
STOCK_RATIO_MIN: Final = Aim("≥", 10)
RESIDENT_MAX_MIB: Final = Aim("≤", 2_048)
LOADED_SHARE: Final = 8  # one run in 8 gets a turn
STOCK_SHARE: Final = 10  # stock Faust gets one record in 10: all would take a minute
TIMEOUT_S: Final = 120.0
RECOVERED: Final = re.compile(r"recovered records=(\d+) s=([\d.]+)")

Partitions = list[list[Record]]


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure recovery."""
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
            "recovery.stock", what, per_s, "records/s", "stock Faust, first tenth of them", stock_per_s,
            aim=STOCK_RATIO_MIN,
        ),
        Row("recovery.resident", "peak resident memory of that worker", peak / 2**20, "MiB", aim=RESIDENT_MAX_MIB),
    ]  # fmt: skip


def _name(number: int) -> str:
    return f"recovered-run-{number:08d}"


def _loaded(runs: int) -> int:
    return runs // LOADED_SHARE


def _states(runs: int, partitions: int) -> tuple[Partitions, list[int]]:
    """Return the records of a changelog, and the number of turns of each sample state that they repeat."""
    from streamproc.worker.codec import encode_run

    samples = [load(raw) for raw in real_states()]
    for state in samples:
        state.offset = 0
    encoded = [encode_run(dump(state), None) for state in samples]
    found: Partitions = [[] for _ in range(partitions)]
    now_ms = int(time.time() * 1000)
    for number in range(runs):
        name = _name(number)
        record = Record(name.encode(), encoded[number % len(encoded)], now_ms)
        found[partition_of(name, partitions)].append(record)
    return found, [state.turns for state in samples]


def _turns(runs: int, partitions: int) -> Partitions:
    """Return a turn of some of the runs; each partition begins with one that its state has already applied."""
    now_ms = int(time.time() * 1000)
    found: Partitions = [[] for _ in range(partitions)]
    for number in range(_loaded(runs)):
        name = _name(number)
        partition = found[partition_of(name, partitions)]
        if not partition:
            partition.append(_turn(name, f"{name}:seen", now_ms))
        partition.append(_turn(name, f"{name}:new", now_ms))
    return found


def _turn(run_id: str, event_id: str, at_ms: int) -> Record:
    turn = Turn(w=WIRE_VERSION, run_id=run_id, node="coder", event_id=event_id, at=at_ms)
    return Record(run_id.encode(), wire.encode(turn), at_ms)


async def _worker(settings: Settings, runs: int) -> tuple[float, float]:
    """Return records per second and peak resident memory in bytes of a worker without local state."""
    with worker(settings) as process:
        ends = await end_offsets(settings, settings.topic("turns"))
        async with asyncio.timeout(TIMEOUT_S):
            while await committed(settings, settings.topic("turns")) != ends:
                process.check()
                await asyncio.sleep(0.1)
        log, peak = process.stderr(), process.peak_bytes()
    recovered = RECOVERED.search(log)
    if recovered is None or int(recovered[1]) != runs or f" runs={runs} " not in log:
        raise BenchmarkDefect(f"the worker did not recover {runs} runs:\n{log}")
    return runs / float(recovered[2]), peak


async def _same_states(settings: Settings, turns_before: list[int], runs: int) -> None:
    """Check that every run that got a turn continued from its recovered state."""
    from streamproc.worker.codec import decode_run

    last: dict[str, bytes] = {}
    async for records in read_all(settings, topics.changelog_topic(settings)):
        last |= {(record.key or b"").decode(): record.value or b"" for record in records}
    wrong = sum(
        decode_run(last[_name(number)])[0].turns != turns_before[number % len(turns_before)] + 1
        for number in range(_loaded(runs))
    )
    if wrong:
        raise BenchmarkDefect(f"{wrong} of {_loaded(runs)} recovered runs did not continue from their state")


async def _stock(settings: Settings, states: Partitions) -> float:
    """Return the records per second of stock Faust."""
    own = settings.model_copy(update={"group": f"{settings.topic_prefix}-stock"})
    changelog = f"{own.worker_group}-runs-changelog"
    await create(own, changelog)
    await fill_topic(own, changelog, states)
    with Process(own, "benchmarks.stock_recovery") as process:
        found = await process.answer(TIMEOUT_S)
    if found["runs"] != sum(map(len, states)):
        raise BenchmarkDefect(f"stock Faust recovered {found['runs']} of {sum(map(len, states))} runs")
    return float(found["timed"]) / float(found["seconds"])
