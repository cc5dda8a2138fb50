"""Faults of the log: duplicates, reordering, unusable records, garbage, clock steps, and a compacted changelog."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streamproc.kafka.topics import changelog_topic
from tests.faults.scenario import PATIENCE_S, Scenario, ready
from tests.faults.workers import DECISIONS_PER_TURN
from tests.faults.workload import Sent, sent
from tests.waiting import until

HOUR_MS: Final = 3_600_000
NOON_MS: Final = 1_750_000_000_000

# The cleaner skips the active segment and the last second of records.
COMPACT_SOON: Final = {
    "cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1000", "delete.retention.ms": "100",
}  # fmt: skip


async def duplicated(scenario: Scenario) -> None:
    """Publishers resend records in flight, and several of them publish turns of one run out of order."""
    turns = scenario.size(3_000, 50_000)
    worker = await scenario.started_worker()
    rng = random.Random(scenario.result.seed)

    def repeat(batch: Sequence[Sent]) -> Sequence[Sent]:
        """Repeat some events and sometimes shuffle the batch."""
        repeated = [one for one in batch for _ in range(1 + (rng.random() < 0.2))]
        scenario.result.times += len(repeated) - len(batch)
        return sorted(repeated, key=lambda _: rng.random()) if rng.random() < 0.5 else repeated

    publishers = [asyncio.create_task(scenario.send(turns // 3, repeat)) for _ in range(3)]
    await scenario.random_moment(int(turns * DECISIONS_PER_TURN))
    await scenario.kill(worker)
    scenario.start()
    await asyncio.gather(*publishers)


def poison(rng: random.Random) -> tuple[bytes | None, bytes | None]:
    """Return a record that no worker can use."""
    key = f"run-{rng.randrange(20)}".encode()
    return rng.choice(
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
            (key, rng.randbytes(rng.randrange(1, 2_000))),
        ]
    )


async def poisoned(scenario: Scenario) -> None:
    """Mix unusable records into the batches."""
    turns = scenario.size(3_000, 50_000)
    await scenario.started_worker()
    rng = random.Random(scenario.result.seed)
    async with scenario.producer() as send:
        for _ in range(turns // 100):
            batch: list[tuple[Any, Any]] = [(one.key, one.value, None) for one in scenario.load.take(100)]
            for _ in range(3):
                batch.insert(rng.randrange(len(batch)), (*poison(rng), None))
                scenario.result.times += 1
            await send(batch)


async def flooded(scenario: Scenario) -> None:
    """Send 50 MB of garbage with turns in between."""
    size, turns = scenario.size((3_000_000, 1_500), (50_000_000, 20_000))
    await scenario.started_worker()
    rng = random.Random(scenario.result.seed)
    sending = asyncio.create_task(scenario.send(turns))
    async with scenario.producer() as send:
        while size > 0:
            pieces = [rng.randbytes(int(10 ** rng.uniform(0, 5.3))) for _ in range(20)]
            size -= sum(map(len, pieces))
            scenario.result.times += len(pieces)
            await send([(rng.randbytes(8), b"\x00" + piece, None) for piece in pieces])  # never a valid event
    await sending


async def clocks(scenario: Scenario) -> None:
    """Step a publisher's clock by an hour in both directions; on a live topic, the broker's clock counts."""
    turns = scenario.size(2_000, 40_000)
    await scenario.started_worker()
    rng = random.Random(scenario.result.seed)
    now_ms = NOON_MS

    def stepped(batch: Sequence[Sent]) -> list[Sent]:
        nonlocal now_ms
        if rng.random() < 0.3:
            now_ms += rng.choice((-HOUR_MS, HOUR_MS))
            scenario.result.times += 1
        now_ms += 1_000
        return [sent({**one.raw, "at": now_ms}) for one in batch]

    await scenario.send(turns, stepped)


async def compacted(scenario: Scenario) -> None:
    """Compact the changelog and start workers from the result."""
    times, turns = scenario.size((1, 3_000), (4, 60_000))
    topic = changelog_topic(scenario.settings)
    await _configure(scenario, topic, COMPACT_SOON)
    await scenario.started_worker()
    for _ in range(times):
        sending = asyncio.create_task(scenario.send(turns // times))
        before = scenario.cleaned
        await sending
        await until(lambda before=before: _compacted(scenario, topic, before), PATIENCE_S, "the cleaner", every_s=0.5)
        scenario.result.times += 1
        victim = scenario.workers[0]
        sending = asyncio.create_task(scenario.send(turns // times // 4))
        await scenario.random_moment(int(turns / times / 4 * DECISIONS_PER_TURN))
        await scenario.kill(victim, scenario.rng.choice((signal.SIGKILL, signal.SIGTERM)))
        await ready(scenario.start())
        await sending


async def _compacted(scenario: Scenario, topic: str, before: int) -> bool:
    """Return whether compaction has removed more records than `before`. New records roll the segment."""
    await scenario.send(20)
    records = await scenario.topics.read_topic(topic)
    ends: dict[int, int] = {}
    for record in records:
        ends[record.partition] = record.offset + 1
    scenario.cleaned = sum(ends.values()) - len(records)
    return scenario.cleaned > before + len(records) // 10


async def _configure(scenario: Scenario, topic: str, settings: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=scenario.settings.brokers)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    finally:
        await admin.close()
