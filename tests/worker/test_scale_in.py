"""Scaling in: the partitions of a named worker that ends for good go on with the others."""

from __future__ import annotations

import re

import pytest
from aiokafka.partitioner import murmur2

from streamproc.kafka import topics as kafka_topics
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, WorkerProcess, expected_ids, gather_controls, looping_run

PARTITIONS = 6
TAKE_OVER_S = 2.0  # for the others to share the partitions and read their states, once the session has ended


def partitions_of(worker: WorkerProcess) -> set[int]:
    """The partitions that a worker said it has, last."""
    return {int(one) for one in re.findall(r"ready partitions=(\S+)", worker.text)[-1].split(",") if one != "-"}


def run_in(partition: int, first: bool) -> str:
    """The id of a run whose events go to this partition, one for the first try and one for the second."""
    names = (f"run-{first}-{number}" for number in range(10_000))
    return next(name for name in names if (murmur2(name.encode()) & 0x7FFFFFFF) % PARTITIONS == partition)


@pytest.mark.long
async def test_the_partitions_of_a_worker_that_ends_for_good_go_on_after_its_session(
    brokers, topic_prefix, start_worker
) -> None:
    """A named worker does not leave its group when it stops, so that a restart moves nothing. The others wait for its
    session to end, and then take over at once. A busy machine gets a second try, with two workers."""
    settings = settings_for(brokers, topic_prefix, partitions=PARTITIONS)
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    names = [f"worker-{number}" for number in range(3)]
    workers = [start_worker(settings.model_copy(update={"instance": name})) for name in names]
    bound_s = settings.session_timeout_s + TAKE_OVER_S

    waited_s = await scale_in(topics, workers, first=True)
    if waited_s > bound_s:
        waited_s = await scale_in(topics, workers[:2], first=False)

    assert waited_s <= bound_s
    assert [worker.end() for worker in workers if worker.running].count(0) in (1, 2)


async def scale_in(topics: Topics, workers: list[WorkerProcess], *, first: bool) -> float:
    """End the last of these workers. Return the longest time in seconds, by the broker's clock, that a turn in one of
    its partitions waited for its decision."""
    await until(lambda: shared(workers), 60, f"{len(workers)} workers to share the partitions")
    runs = {partition: run_in(partition, first) for partition in range(PARTITIONS)}
    wanted = {one["id"] for one in await topics.controls()}
    await topics.send([record for run in runs.values() for record in looping_run(run, 2)])
    await topics.done()
    orphaned = partitions_of(workers[-1])
    assert workers[-1].end() == 0

    await topics.send([looping_run(runs[partition], 3)[2] for partition in orphaned])

    turns = {run: 3 if partition in orphaned else 2 for partition, run in runs.items()}
    wanted |= {one for run, count in turns.items() for one in expected_ids(looping_run(run, count))}
    await gather_controls(topics, wanted)
    assert {one["id"] for one in await topics.controls()} == wanted, "nothing is decided but once"
    sent = {record.key: record.timestamp for record in await topics.read("turns")}
    decided = {record.key: record.timestamp for record in await topics.read("control")}
    return max(decided[key] - sent[key] for key in (runs[one].encode() for one in orphaned)) / 1000


def shared(workers: list[WorkerProcess]) -> bool:
    """Whether each of these workers has partitions, and together they have all."""
    if not all(worker.said("ready partitions=") for worker in workers):
        return False
    shares = [partitions_of(worker) for worker in workers]
    return all(shares) and sorted(one for share in shares for one in share) == list(range(PARTITIONS))
