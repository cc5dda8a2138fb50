"""Workers with a name that return under another host name, as in a new container, and the upgrade to such workers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable

import pytest

from streamproc.kafka import topics as kafka_topics
from streamproc.settings import Settings
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import (
    Topics,
    WorkerProcess,
    expected_ids,
    gather_controls,
    log_of_loops,
    looping_run,
    run_sync,
)
from tests.worker.test_rebalance import ready_lines

SESSION_S = 120  # twice what the tests wait: whatever a worker decides here, it decides as the member it was before


def on_host(name: str, *, old: bool = False) -> str:
    """Run a worker as on a host of this name. An `old` worker has Faust's assignor, as before `HostlessAssignor`."""
    return f"""
from faust.assignor.partition_assignor import PartitionAssignor
from faust.types.settings import Settings
from streamproc.worker import faust_app
Settings.NODE_HOSTNAME = {name!r}
if {old}:
    faust_app.HostlessAssignor = PartitionAssignor
"""


FAILS_ONCE = """
from streamproc.worker import faust_app
accept, failures = faust_app.HostlessAssignor.on_assignment, [AssertionError("a bug in the assignor")]
def on_assignment(self, assignment):
    if failures:
        raise failures.pop()
    accept(self, assignment)
faust_app.HostlessAssignor.on_assignment = on_assignment
"""


@pytest.fixture
def named(brokers: str, topic_prefix: str) -> Callable[[str], Settings]:
    """The settings of a worker by its name. All workers are of one deployment, whose topics exist."""
    run_sync(kafka_topics.apply(settings_for(brokers, topic_prefix)))
    return lambda name: settings_for(brokers, topic_prefix, instance=name, session_timeout_s=SESSION_S)


@pytest.mark.long
async def test_a_worker_in_a_new_container_has_its_partitions_at_once(named, start_worker, path) -> None:
    settings = named("worker-0")
    topics = Topics(settings)
    first = start_worker(settings, path, before=on_host("container-1"))
    await first.ready()
    await topics.send(looping_run("r", 2))
    await topics.done()
    first.end(signal.SIGKILL)

    second = start_worker(settings, path, before=on_host("container-2"))
    await topics.send(looping_run("r", 3)[2:])

    await gather_controls(topics, expected_ids(looping_run("r", 3)))
    assert ready_lines(second.text) == [({0, 1, 2, 3}, 1)]
    assert second.end() == 0


@pytest.mark.long
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["leader first", "leader last"])
async def test_workers_of_an_older_version_are_replaced_one_by_one(named, start_worker, order) -> None:
    """Each new worker gets the assignment of the old one back, with the host name of the old one, and back again."""
    records = log_of_loops(40)
    topics = Topics(named("worker-0"))
    workers = {}
    for number in (0, 1):  # the first one leads the group
        workers[number] = start_worker(named(f"worker-{number}"), before=on_host(f"host-{number}", old=True))
        await workers[number].ready()
    await workers[0].ready(2)
    sent = 0

    async def replace(number: int, host: str, *, old: bool = False) -> None:
        nonlocal sent
        mine = ready_lines(workers[number].text)[-1][0]
        assert workers[number].end() == 0
        workers[number] = start_worker(named(f"worker-{number}"), before=on_host(host, old=old))
        await topics.send(records[sent : sent + 60])
        sent += 60
        await workers[number].ready()
        await gather_controls(topics, expected_ids(records[:sent]))
        assert ready_lines(workers[number].text)[-1][0] == mine, "it is the member that it was"

    for number in order:
        await replace(number, f"container-{number}")  # an upgrade that changes the host name, too
        await replace(number, f"host-{number}", old=True)  # and back, to where the old one was
        await replace(number, f"host-{number}")  # an upgrade of a pod, which keeps its host name
        if number == order[0]:  # old and new workers share a rebalance, led by either
            workers[2] = start_worker(named("worker-2"), before=on_host("host-2"))
            await workers[2].ready()
            await until(lambda: shared(workers.values()), 60, "three workers to share the partitions")

    assert sent == len(records)
    await topics.done()
    controls = [control["id"] for control in await topics.controls()]
    assert len(controls) == len(set(controls)), "all stopped with everything committed"
    assert set(controls) == expected_ids(records)
    assert [worker.end() for worker in workers.values()] == [0, 0, 0]


def shared(workers: Iterable[WorkerProcess]) -> bool:
    """Whether each of the workers has partitions, no two have the same, and none is left."""
    held = [lines[-1][0] if (lines := ready_lines(worker.text)) else set() for worker in workers]
    return all(held) and sorted(partition for one in held for partition in one) == [0, 1, 2, 3]


@pytest.mark.long
async def test_an_error_that_ends_the_coordination_with_the_group_restarts_the_worker(
    settings, topics, start_worker
) -> None:
    """aiokafka logs it and does nothing from then on."""
    worker = start_worker(settings, before=FAILS_ONCE)
    await topics.send(looping_run("r", 3))
    await gather_controls(topics, expected_ids(looping_run("r", 3)))
    assert worker.said("worker crashed; restarting from committed offsets")
    assert "a bug in the assignor" in worker.text
    assert worker.end() == 0
