"""A worker with its runs on disk decides the same, whatever happens to the process or the disk."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from streamproc.kafka import topics as kafka_topics
from streamproc.settings import Settings
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import expected_ids, gather_controls, honest_run, interleaved, log_of_loops, looping_run
from tests.worker.test_rebalance import ready_lines

# No file may grow past this, as on a disk that is full.
FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
from streamproc.worker import app
app.RETRY_FIRST_S, app.CRASHES_MAX = 0.01, 2
"""


@pytest.fixture
async def settings(brokers: str, topic_prefix: str, tmp_path: Path) -> Settings:
    """A deployment whose workers keep their runs in one directory, whichever process they are."""
    settings = settings_for(brokers, topic_prefix, store="rocksdb", instance="worker-0", datadir=str(tmp_path / "data"))
    await kafka_topics.apply(settings)
    return settings


def read_of_the_changelog(text: str) -> int:
    """Records that a worker has read in all its recoveries."""
    return sum(int(count) for count in re.findall(r", (\d+) records read of the changelog", text))


def halves(records: list[tuple[bytes, bytes]]) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    return records[: len(records) // 2], records[len(records) // 2 :]


async def test_a_killed_worker_continues_from_its_disk_and_decides_the_same(settings, topics, start_worker) -> None:
    records = log_of_loops(60)
    early, late = halves(records)
    first = start_worker(settings)
    await topics.send(early)
    await topics.done()
    await topics.send(late[:100])
    first.end(signal.SIGKILL)

    second = start_worker(settings)
    await second.ready()
    assert ready_lines(second.text)[-1] == ({0, 1, 2, 3}, 60)
    assert read_of_the_changelog(second.text) <= 100, "what it had is not read again"
    await topics.send(late[100:])

    await gather_controls(topics, expected_ids(records))
    await topics.done()
    assert {control["id"] for control in await topics.controls()} == expected_ids(records)
    assert second.end() == 0


@pytest.mark.long
async def test_a_partition_that_comes_back_has_the_states_of_other_workers(settings, topics, start_worker) -> None:
    """What lies on the disk of the worker that had it before is older than the changelog."""
    records = log_of_loops(40)
    third = len(records) // 3
    first = start_worker(settings)
    await first.ready()
    await topics.send(records[:third])
    await topics.done()
    other = settings.model_copy(update={"instance": "worker-1"})
    second = start_worker(other)
    await second.ready()
    await first.ready(2)
    assert ready_lines(first.text)[-1][0] | ready_lines(second.text)[-1][0] == {0, 1, 2, 3}
    await topics.send(records[third : 2 * third])
    await topics.done()

    assert second.end() == 0
    await until(lambda: ready_lines(first.text)[-1] == ({0, 1, 2, 3}, 40), 60)
    await topics.send(records[2 * third :])

    await gather_controls(topics, expected_ids(records))
    await topics.done()
    assert {control["id"] for control in await topics.controls()} == expected_ids(records)
    assert first.end() == 0


async def test_a_full_disk_loses_nothing_and_the_worker_continues_with_space(settings, topics, start_worker) -> None:
    early = [*log_of_loops(20), *interleaved([honest_run(f"many-{number}", 2) for number in range(1_500)])]
    late = looping_run("late")
    await topics.send(early)
    worker = start_worker(settings, before=FULL)
    await until(lambda: not worker.running, 90)
    assert worker.end() == 1
    assert "IO error: While appending to file" in worker.text
    assert "Check whether the disk is full. Nothing is lost" in worker.text
    committed, _ = await topics.offsets()
    assert not any(committed.values()), "no record that is not stored"

    roomy = start_worker(settings)
    await topics.send(late)

    await gather_controls(topics, expected_ids([*early, *late]))
    await topics.done()
    assert {control["id"] for control in await topics.controls()} == expected_ids([*early, *late])
    assert roomy.end() == 0


async def test_a_second_worker_in_the_same_directory_is_refused(settings, start_worker) -> None:
    first = start_worker(settings)
    await first.ready()
    second = start_worker(settings)
    await until(lambda: not second.running, 60)
    assert second.end() == 2
    assert "another worker keeps its runs in" in second.text
    assert first.end() == 0


async def test_a_recreated_changelog_is_not_mistaken_for_the_old_one(settings, topics, start_worker) -> None:
    first = start_worker(settings)
    await topics.send(honest_run("r", 5))
    await topics.done()
    assert first.end() == 0
    renamed = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-renamed"})
    await kafka_topics.apply(renamed)
    place = Path(settings.datadir)
    (place / settings.worker_group).rename(place / renamed.worker_group)

    second = start_worker(renamed)
    await second.ready()

    assert "was recreated; dropping 1 runs of partition" in second.text
    assert ready_lines(second.text)[-1] == ({0, 1, 2, 3}, 0)
    assert second.end() == 0
