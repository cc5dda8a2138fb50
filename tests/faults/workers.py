"""Faults of workers: they are killed, freeze, join and leave, have a full disk, or buggy detectors."""

from __future__ import annotations

import asyncio
import signal

from streamproc.policy import load_policy
from tests.faults.buggy_detectors import INSTALL, BuggyPolicy
from tests.faults.scenario import PATIENCE_S, Scenario, ready
from tests.waiting import until

DECISIONS_PER_TURN = 0.07  # approximate decisions per turn of the workload

# Limit the file size, as a full disk would; the log must stay small. The worker gives up after its second attempt.
FULL = """
import logging, resource
logging.disable(logging.INFO)
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, resource.RLIM_INFINITY))
from streamproc.worker import app
app.RETRY_FIRST_S, app.CRASHES_MAX = 0.01, 2
"""


async def killed(scenario: Scenario) -> None:
    """Kill workers with SIGKILL at random moments. One of the two is a static member and restarts under its name."""
    kills, turns = scenario.size((2, 4_000), (20, 100_000))
    names = {scenario.start("worker-0"): "worker-0", scenario.start(): ""}
    for worker in names:
        await ready(worker)
    for _ in range(kills):
        sending = asyncio.create_task(scenario.send(turns // kills))
        await scenario.random_moment(int(turns / kills * DECISIONS_PER_TURN))
        victim = scenario.rng.choice(list(names))
        await scenario.kill(victim)
        scenario.result.times += 1
        name = names.pop(victim)
        names[scenario.start(name)] = name
        await sending


async def frozen(scenario: Scenario) -> None:
    """Freeze a worker past its session time-out. Others take over its partitions; then it resumes as a zombie."""
    times, turns = scenario.size((1, 3_000), (6, 60_000))
    first = await scenario.started_worker()
    await scenario.started_worker()
    await ready(first, 2)
    for _ in range(times):
        zombie, other = scenario.rng.sample(scenario.workers, 2)
        had = other.text.count("ready partitions=")
        share = turns // times // 3
        sending = asyncio.create_task(scenario.send(share))
        await scenario.random_moment(int(share * DECISIONS_PER_TURN))
        zombie.send(signal.SIGSTOP)
        scenario.result.times += 1
        await sending
        await ready(other, had + 1)
        await scenario.send(share)
        back = zombie.text.count("ready partitions=")
        zombie.send(signal.SIGCONT)
        await scenario.send(share)
        await ready(zombie, back + 1)


async def frozen_alone(scenario: Scenario) -> None:
    """Freeze the only worker: the group is empty until it resumes."""
    times, turns = scenario.size((1, 2_000), (4, 20_000))
    worker = await scenario.started_worker()
    for _ in range(times):
        share = turns // times // 2
        sending = asyncio.create_task(scenario.send(share))
        await scenario.random_moment(int(share * DECISIONS_PER_TURN))
        worker.send(signal.SIGSTOP)
        scenario.result.times += 1
        await sending
        await until(scenario.topics.no_members, PATIENCE_S, "the group to expel the worker", every_s=0.2)
        worker.send(signal.SIGCONT)
        await scenario.send(share)


async def rescaled(scenario: Scenario) -> None:
    """Scale from one worker to three to two, under load."""
    times, turns = scenario.size((2, 6_000), (10, 100_000))
    await scenario.started_worker()
    sending = asyncio.create_task(scenario.send(turns))
    share = int(turns / times / 4 * DECISIONS_PER_TURN)
    for _ in range(times):
        await scenario.random_moment(share)
        added = [scenario.start() for _ in range(3 - len(scenario.workers))]
        for worker in added:
            await ready(worker)
        await scenario.random_moment(share)
        await scenario.kill(scenario.rng.choice(scenario.workers), signal.SIGTERM)
        scenario.result.times += 1
        await scenario.random_moment(share)
    await sending


async def full(scenario: Scenario) -> None:
    """Fill the disk under a worker's RocksDB. It exits without committing unstored work, and continues from its stored
    states once there is space."""
    times, share = scenario.size((1, 1_000), (8, 4_000))
    datadir = str(scenario.directory / "data")
    for _ in range(times):
        scenario.before = FULL.format(bytes=scenario.rng.randrange(20_000, 60_000))
        on_full_disk = scenario.start("worker-0", datadir=datadir)
        while on_full_disk.running:
            await scenario.send(100)
        await scenario.exits_with_an_error(on_full_disk)
        assert "Check whether the disk is full. Nothing is lost" in on_full_disk.text
        scenario.result.times += 1
        scenario.before = ""
        with_space = await scenario.started_worker("worker-0", datadir=datadir)
        sending = asyncio.create_task(scenario.send(share))
        await scenario.random_moment(int(share * DECISIONS_PER_TURN))
        await scenario.kill(with_space)
        await sending
    scenario.start("worker-0", datadir=datadir)


async def buggy(scenario: Scenario) -> None:
    """Make detectors raise: the engine skips the one that raises, and the others decide as usual, as in the scan."""
    turns = scenario.size(3_000, 50_000)
    scenario.before, policy = INSTALL, BuggyPolicy(load_policy(scenario.settings.policy))
    scenario.policy = policy
    async with scenario.open():
        first = await scenario.started_worker()
        last = await scenario.started_worker()
        sending = asyncio.create_task(scenario.send(turns))
        await scenario.random_moment(int(turns * DECISIONS_PER_TURN))
        await scenario.kill(first)
        await sending
        await scenario.finish()
    assert "raised an exception (1 so far); it skipped this event" in last.text
    assert {"LOOP001", "ERROR001"} <= set(policy.raised)
    scenario.result.times = len(policy.raised)
