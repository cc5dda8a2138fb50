"""A record harms only itself: whatever it costs, and even if it ends the worker's process."""

from __future__ import annotations

import itertools
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest

from streamproc.kafka import topics as kafka_topics
from streamproc.policy import Policy, load_policy
from streamproc.worker import timed_records
from streamproc.worker.limits import SLICE_S
from streamproc.worker.partition_pipeline import PartitionPipeline
from streamproc.worker.tables import RunLimits, Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.security.maximal import CASES, maximal
from tests.waiting import until
from tests.worker.conftest import settings_for, start_worker
from tests.worker.records import TOPIC, records_of
from tests.worker.running import Topics, expected_ids, gather_controls, honest_run, looping_run, turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.worker.running import WorkerProcess

__all__ = ["start_worker"]  # a fixture

LIVES_MAX: Final = 6
BURST: Final = 1_000
EVENT_BYTES: Final = 65_536
EXIT_CODE = 77

# A fault in native code, say: no exception, no clean-up.
DEADLY = f"""
import os
from streamproc.core.engine import Engine
honest = Engine.step
def deadly(self, run, event, at_ms):
    if event.node == "deadly":
        os._exit({EXIT_CODE})
    return honest(self, run, event, at_ms)
Engine.step = deadly
"""


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

    assert codes == [EXIT_CODE] * 3, "one of many, and twice by itself"
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
