"""What happens to workers: they are killed, they freeze, they come and go, their disk is full, their code has bugs."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from streamproc.policy import load_policy
from tests.faults.bug import PLANT, BuggyPolicy
from tests.faults.scene import PATIENCE_S, ready
from tests.waiting import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene

TOLD_A_TURN = 0.07  # decisions that the workload leads to, about

# No file may grow past this, as on a disk that is full, and the log must not; the second life gives up.
FULL = """
import logging, resource
logging.disable(logging.INFO)
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, resource.RLIM_INFINITY))
from streamproc.worker import app
app.RETRY_FIRST_S, app.LIVES_MAX = 0.01, 2
"""


async def killed(scene: Scene) -> None:
    """kill -9, again and again, at random moments of the work; one of two workers has a name that it comes back
    with."""
    kills, turns = scene.size((2, 4_000), (20, 100_000))
    names = {scene.start("worker-0"): "worker-0", scene.start(): ""}
    for worker in names:
        await ready(worker)
    for _ in range(kills):
        sending = asyncio.create_task(scene.send(turns // kills))
        await scene.moment(int(turns / kills * TOLD_A_TURN))
        victim = scene.dice.choice(list(names))
        await scene.kill(victim)
        scene.figures.times += 1
        name = names.pop(victim)
        names[scene.start(name)] = name
        await sending


async def frozen(scene: Scene) -> None:
    """SIGSTOP for longer than the session: others have its partitions, and then it is back and knows nothing of it."""
    times, turns = scene.size((1, 3_000), (6, 60_000))
    first = await scene.started_worker()
    await scene.started_worker()
    await ready(first, 2)
    for _ in range(times):
        zombie, other = scene.dice.sample(scene.workers, 2)
        had = other.text.count("ready partitions=")
        share = turns // times // 3
        sending = asyncio.create_task(scene.send(share))
        await scene.moment(int(share * TOLD_A_TURN))
        zombie.send(signal.SIGSTOP)
        scene.figures.times += 1
        await sending
        await ready(other, had + 1)
        await scene.send(share)
        back = zombie.text.count("ready partitions=")
        zombie.send(signal.SIGCONT)
        await scene.send(share)
        await ready(zombie, back + 1)


async def frozen_alone(scene: Scene) -> None:
    """The same to a worker that has no successor: the group is empty until it is back."""
    times, turns = scene.size((1, 2_000), (4, 20_000))
    worker = await scene.started_worker()
    for _ in range(times):
        share = turns // times // 2
        sending = asyncio.create_task(scene.send(share))
        await scene.moment(int(share * TOLD_A_TURN))
        worker.send(signal.SIGSTOP)
        scene.figures.times += 1
        await sending
        await until(scene.topics.no_members, PATIENCE_S, "the group to expel the worker", every_s=0.2)
        worker.send(signal.SIGCONT)
        await scene.send(share)


async def rescaled(scene: Scene) -> None:
    """One worker, three, two, under load."""
    times, turns = scene.size((2, 6_000), (10, 100_000))
    await scene.started_worker()
    sending = asyncio.create_task(scene.send(turns))
    share = int(turns / times / 4 * TOLD_A_TURN)
    for _ in range(times):
        await scene.moment(share)
        added = [scene.start() for _ in range(3 - len(scene.workers))]
        for worker in added:
            await ready(worker)
        await scene.moment(share)
        await scene.kill(scene.dice.choice(scene.workers), signal.SIGTERM)
        scene.figures.times += 1
        await scene.moment(share)
    await sending


async def full(scene: Scene) -> None:
    """The disk under a worker's RocksDB is full: it ends with nothing committed that is not kept, and with room again
    it goes on from what it has."""
    times, share = scene.size((1, 1_000), (8, 4_000))
    place = str(scene.directory / "data")
    for _ in range(times):
        scene.before = FULL.format(bytes=scene.dice.randrange(20_000, 60_000))
        cramped = scene.start("worker-0", datadir=place)
        while cramped.running:
            await scene.send(100)
        await scene.ended_by_itself(cramped)
        assert "Is the disk full? Nothing is lost" in cramped.text
        scene.figures.times += 1
        scene.before = ""
        roomy = await scene.started_worker("worker-0", datadir=place)
        sending = asyncio.create_task(scene.send(share))
        await scene.moment(int(share * TOLD_A_TURN))
        await scene.kill(roomy)
        await sending
    scene.start("worker-0", datadir=place)


async def buggy(scene: Scene) -> None:
    """Detectors that raise: each is left out where it does, and all others decide as ever, here and in the scan."""
    turns = scene.size(3_000, 50_000)
    scene.before, policy = PLANT, BuggyPolicy(load_policy(scene.settings.policy))
    scene.policy = policy
    async with scene.open():
        first = await scene.started_worker()
        last = await scene.started_worker()
        sending = asyncio.create_task(scene.send(turns))
        await scene.moment(int(turns * TOLD_A_TURN))
        await scene.kill(first)
        await sending
        await scene.finish()
    assert "raised, for the 1. time: it tells nothing of this event" in last.text
    assert {"LOOP001", "ERROR001"} <= set(policy.raised)
    scene.figures.times = len(policy.raised)
