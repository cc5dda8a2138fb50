"""What happens to workers: they are killed, they freeze, they come and go."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from tests.faults.scene import PATIENCE_S, ready
from tests.waiting import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene

TOLD_A_TURN = 0.07  # decisions that the workload leads to, about


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
