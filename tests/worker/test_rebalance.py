"""Several workers: partitions that move take their runs along, and nothing is decided twice or not at all."""

from __future__ import annotations

import re
import signal

import pytest

from tests.worker.conftest import settings_for
from tests.worker.running import expected_ids, gather_controls, log_of_loops, looping_run


def ready_lines(text: str) -> list[tuple[set[int], int]]:
    """What a worker said it had: partitions and runs, each time."""
    found = re.findall(r"ready partitions=(\S+) runs=(\d+)", text)
    return [(set() if mine == "-" else {int(one) for one in mine.split(",")}, int(runs)) for mine, runs in found]


@pytest.mark.long
async def test_partitions_move_between_workers_with_their_runs(settings, topics, start_worker, path) -> None:
    records = log_of_loops(40)
    third = len(records) // 3
    first = start_worker(settings, path)
    await first.ready()
    await topics.send(records[:third])
    await topics.done()

    second = start_worker(settings, path)
    await second.ready()
    await first.ready(2)
    mine, yours = ready_lines(first.text)[-1], ready_lines(second.text)[-1]
    assert mine[0] | yours[0] == {0, 1, 2, 3}
    assert not mine[0] & yours[0]
    assert mine[1] + yours[1] == 40
    assert mine[1], "what stays is not read again"
    await topics.send(records[third : 2 * third])
    await topics.done()

    second.end(signal.SIGKILL)
    await topics.send(records[2 * third :])
    await gather_controls(topics, expected_ids(records))
    assert ready_lines(first.text)[-1] == ({0, 1, 2, 3}, 40)
    assert first.end() == 0
    controls = [control["id"] for control in await topics.controls()]
    assert set(controls) == expected_ids(records)
    assert len(controls) == len(set(controls)), "both stopped with everything committed"


async def test_a_named_worker_that_restarts_within_its_session_keeps_its_partitions(
    brokers, topic_prefix, topics, start_worker
) -> None:
    """Its partitions wait for it: a restart is not a rebalance."""
    settings = settings_for(brokers, topic_prefix, instance="worker-0", session_timeout_s=120)
    first = start_worker(settings)
    await first.ready()
    await topics.send(looping_run("r", 2))
    await topics.done()
    first.end(signal.SIGKILL)

    second = start_worker(settings)
    await topics.send(looping_run("r", 3)[2:])

    await gather_controls(topics, expected_ids(looping_run("r", 3)))
    assert second.end() == 0
