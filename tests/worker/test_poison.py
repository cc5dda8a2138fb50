"""A record harms only itself: whatever it costs, and even if it ends the worker's process."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Final

import pytest

from streamproc.client import HaltListener
from streamproc.kafka import topics as kafka_topics
from streamproc.policy import Policy, load_policy
from streamproc.worker import timed_records
from streamproc.worker.limits import SLICE_S
from streamproc.worker.partition_pipeline import PartitionPipeline
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.waiting import until
from tests.worker.bursts import COSTLIEST, DEADLY, EXIT_CODE, run_on, send_burst
from tests.worker.conftest import settings_for
from tests.worker.maximal import CASES, SIZE, maximal
from tests.worker.records import TOPIC, records_of
from tests.worker.running import Topics, WorkerProcess, expected_ids, gather_controls, honest_run, looping_run, turn

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


LIVES_MAX: Final = 6
BURST: Final = 1_000
EVENT_BYTES: Final = 65_536
NEIGHBOURS: Final = 5


@pytest.mark.long
async def test_a_record_that_ends_the_process_is_refused_after_two_crashes_and_no_other_is(
    brokers: str, topic_prefix: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    # A static member's partitions wait for it: each life begins at once.
    member = settings_for(brokers, topic_prefix, instance="worker-0", session_timeout_s=120)
    await kafka_topics.apply(member)
    topics = Topics(member)
    loop, others = looping_run("r", 6), honest_run("honest", 20)
    await topics.send([*loop[:2], *others[:10], turn("r", "deadly"), *loop[2:], *others[10:]])

    codes: list[int] = []
    while len(codes) < LIVES_MAX:
        worker = start_worker(member, before=DEADLY)

        async def ended_or_done(worker: WorkerProcess = worker) -> bool:
            return not worker.running or await topics.lag() == 0

        await until(ended_or_done, 90, "the worker to end or to commit everything", every_s=0.2)
        if worker.running:
            break
        codes.append(worker.end())

    assert codes == [EXIT_CODE] * 4, "one of many, one of a few, and twice by itself"
    await gather_controls(topics, expected_ids([*loop, *others]))
    [refused] = await topics.read("dead-letter")
    assert b"was in hand when the worker crashed twice" in dict(refused.headers)["reason"]
    assert b'"deadly"' in refused.value
    assert worker.end() == 0


@cache
def standard() -> Policy:
    return load_policy()


class Nowhere:
    """A publisher for pipelines whose tasks do not run."""


@pytest.mark.parametrize("case", CASES)
def test_a_slice_of_the_largest_events_ends_by_time(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record takes three fifths of a slice by this clock. `test_bounded_work.py` bounds what one really takes."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) * SLICE_S * 0.6)
    monkeypatch.setattr(timed_records, "time", clock)
    processor = TurnProcessor(
        standard().engine(), TOPIC, event_bytes_max=1_048_576, dead_letter_bytes=900_000, version="1"
    )
    pipeline = PartitionPipeline("runs", Runs(0, RunLimits()), processor, Nowhere())  # type: ignore[arg-type]

    taken = pipeline.accept(records_of([(b"maximal", maximal(case, "maximal", EVENT_BYTES))] * BURST))

    assert pipeline.position == taken == 2


async def test_bursts_of_the_costliest_records_do_not_delay_the_halts_of_other_partitions(
    brokers: str, topic_prefix: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    """A thousand of each wait in three partitions, and loops in the fourth are halted after a few slices.

    Time is counted in the worker's own, so a busy machine does not matter. `make faults` measures the milliseconds.
    """
    settings = settings_for(brokers, topic_prefix)
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    burst_on = dict(zip((0, 2, 3), COSTLIEST, strict=True))
    for partition, case in burst_on.items():
        key = run_on(partition, settings.partitions)
        await send_burst(settings, partition, key.encode(), maximal(case, key, SIZE), BURST)
    worker = start_worker(settings)
    await worker.ready()

    took_s = []
    async with HaltListener(settings=settings, start_timeout_s=60) as halts:
        for number in range(NEIGHBOURS):
            run_id = run_on(1, settings.partitions, f"neighbour-{number}")
            before_s = cpu_s(worker)
            await topics.send(looping_run(run_id))
            async with asyncio.timeout(60):
                while halts.halted(run_id) is None:
                    await asyncio.sleep(0.001)
            took_s.append(cpu_s(worker) - before_s)

    committed, ends = await topics.offsets()
    assert all(committed[partition] < ends[partition] == BURST for partition in burst_on), "the bursts are not over"
    assert median(took_s) < 1, took_s


def cpu_s(worker: WorkerProcess) -> float:
    """Return the CPU time of a worker so far."""
    fields = Path(f"/proc/{worker.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
