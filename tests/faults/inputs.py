"""What happens to the log: duplicates, other orders, poison, garbage, clocks that jump; and a changelog that is
compacted."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streamproc.kafka.topics import changelog_topic
from tests.faults.scene import PATIENCE_S, ready
from tests.faults.workers import TOLD_A_TURN
from tests.faults.workload import Sent, sent
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.scene import Scene

HOUR_MS: Final = 3_600_000
NOON_MS: Final = 1_750_000_000_000

# The cleaner leaves the segment alone that is being written, and the last second of it.
COMPACT_SOON: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "100",
}


async def duplicated(scene: Scene) -> None:
    """Publishers repeat what was in flight; and several of them publish turns of one run, in no order."""
    turns = scene.size(3_000, 50_000)
    worker = await scene.started_worker()
    dice = random.Random(scene.figures.seed)

    def again(some: Sequence[Sent]) -> Sequence[Sent]:
        """Each event once or twice, and mixed with its neighbours'."""
        repeated = [one for one in some for _ in range(1 + (dice.random() < 0.2))]
        scene.figures.times += len(repeated) - len(some)
        return sorted(repeated, key=lambda _: dice.random()) if dice.random() < 0.5 else repeated

    publishers = [asyncio.create_task(scene.send(turns // 3, again)) for _ in range(3)]
    await scene.moment(int(turns * TOLD_A_TURN))
    await scene.kill(worker)
    scene.start()
    await asyncio.gather(*publishers)


def poison(dice: random.Random) -> tuple[bytes | None, bytes | None]:
    """A record that no worker can use, of one kind or another."""
    key = f"run-{dice.randrange(20)}".encode()
    return dice.choice(
        [
            (key, b"\xff\xfe not JSON"),
            (key, None),
            (key, b""),
            (key, b"[" * 5_000),
            (key, b'{"node": "coder"}'),
            (key, b'{"run_id": "r", "node": "coder", "tests": 7}'),
            (key, b'{"run_id": "r", "node": "coder", "type": "surprise"}'),
            (key, b'{"run_id":"r","node":"n","usage":{"cost_usd":NaN}}'),
            (None, b"nothing"),
            (key, dice.randbytes(dice.randrange(1, 2_000))),
        ]
    )


async def poisoned(scene: Scene) -> None:
    """Records that cannot be used, in the middle of the batches of others."""
    turns = scene.size(3_000, 50_000)
    await scene.started_worker()
    dice = random.Random(scene.figures.seed)
    async with scene.producer() as send:
        for _ in range(turns // 100):
            some: list[tuple[Any, Any]] = [(one.key, one.value, None) for one in scene.load.take(100)]
            for _ in range(3):
                some.insert(dice.randrange(len(some)), (*poison(dice), None))
                scene.figures.times += 1
            await send(some)


async def flooded(scene: Scene) -> None:
    """50 MB of garbage, with turns in between."""
    size, turns = scene.size((3_000_000, 1_500), (50_000_000, 20_000))
    await scene.started_worker()
    dice = random.Random(scene.figures.seed)
    sending = asyncio.create_task(scene.send(turns))
    async with scene.producer() as send:
        while size > 0:
            pieces = [dice.randbytes(int(10 ** dice.uniform(0, 5.3))) for _ in range(20)]
            size -= sum(map(len, pieces))
            scene.figures.times += len(pieces)
            await send([(dice.randbytes(8), b"\x00" + piece, None) for piece in pieces])  # never an event, by chance
    await sending


async def clocks(scene: Scene) -> None:
    """A publisher's clock steps an hour forth, and back: on a live topic the broker's clock counts."""
    turns = scene.size(2_000, 40_000)
    await scene.started_worker()
    dice = random.Random(scene.figures.seed)
    now_ms = NOON_MS

    def stepped(some: Sequence[Sent]) -> list[Sent]:
        nonlocal now_ms
        if dice.random() < 0.3:
            now_ms += dice.choice((-HOUR_MS, HOUR_MS))
            scene.figures.times += 1
        now_ms += 1_000
        return [sent({**one.raw, "at": now_ms}) for one in some]

    await scene.send(turns, stepped)


async def compacted(scene: Scene) -> None:
    """The changelog is compacted, for real, and workers start from what is left."""
    times, turns = scene.size((1, 3_000), (4, 60_000))
    topic = changelog_topic(scene.settings)
    await _configure(scene, topic, COMPACT_SOON)
    await scene.started_worker()
    for _ in range(times):
        sending = asyncio.create_task(scene.send(turns // times))
        before = scene.cleaned
        await sending
        await until(lambda before=before: _compacted(scene, topic, before), PATIENCE_S, "the cleaner", every_s=0.5)
        scene.figures.times += 1
        victim = scene.workers[0]
        sending = asyncio.create_task(scene.send(turns // times // 4))
        await scene.moment(int(turns / times / 4 * TOLD_A_TURN))
        await scene.kill(victim, scene.dice.choice((signal.SIGKILL, signal.SIGTERM)))
        await ready(scene.start())
        await sending


async def _compacted(scene: Scene, topic: str, before: int) -> bool:
    """Whether records were taken out of the changelog, more than `before`. A new one rolls the segment."""
    await scene.send(20)
    records = await scene.topics.read_topic(topic)
    ends: dict[int, int] = {}
    for record in records:
        ends[record.partition] = record.offset + 1
    scene.cleaned = sum(ends.values()) - len(records)
    return scene.cleaned > before + len(records) // 10


async def _configure(scene: Scene, topic: str, settings: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=scene.settings.brokers)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    finally:
        await admin.close()
