"""The retention of statuses on a real Kafka: what workers remove from `runs`, and what a new listener then knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.partitioner import murmur2
from pydantic import SecretStr

from streamproc.client import HaltListener
from streamproc.fleet.keyring import new_keys
from streamproc.fleet.record_signing import record_signer
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.topics import DAY_MS, HOUR_MS
from streamproc.replay.published import status_of_run, statuses
from streamproc.settings import Settings
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import EAGER, Topics, WorkerProcess, honest_run, looping_run

# A worker that never looks for old statuses.
NEVER = "from streamproc.worker import limits; limits.STATUS_SWEEP_FIRST_S = 1e6"


@pytest.fixture
async def settings(brokers: str, topic_prefix: str) -> Settings:
    """A deployment in which the times of turns and statuses are those that their senders choose."""
    settings = settings_for(brokers, topic_prefix, timestamp_type="CreateTime")
    config = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    async with kafka_topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(settings.topic("runs"), settings.partitions, 1, topic_configs=config)])
    await kafka_topics.apply(settings)
    return settings


class RunsTopic:
    """What tests write to `runs` and find there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._now_ms = 0

    async def write(self, *records: tuple[str, str | None, int]) -> None:
        """Write (run, status, age in ms); a status of None is a tombstone."""
        import time

        now_ms = int(time.time() * 1000)
        async with AIOKafkaProducer(bootstrap_servers=self.settings.brokers) as producer:
            for run_id, status, age_ms in records:
                severity = "halt" if status == "halted" else "info"
                value = f'{{"run_id":"{run_id}","status":"{status}","severity":"{severity}"}}'.encode()
                await producer.send_and_wait(
                    self.settings.topic("runs"), value if status else None, key=run_id.encode(),
                    partition=self.partition_of(run_id), timestamp_ms=now_ms - age_ms,
                )  # fmt: skip

    def partition_of(self, run_id: str) -> int:
        return (murmur2(run_id.encode()) & 0x7FFFFFFF) % self.settings.partitions

    async def latest(self) -> dict[str, Any]:
        """The last record of each run: its status, None for a tombstone."""
        found = {}
        for record in await Topics(self.settings).read("runs"):
            status = re.search(rb'"status":"(\w+)"', record.value or b"")
            found[record.key.decode()] = status and status[1].decode()
        return found

    async def forgotten(self) -> set[str]:
        return {run_id for run_id, status in (await self.latest()).items() if status is None}


@pytest.fixture
def runs_topic(settings: Settings) -> RunsTopic:
    return RunsTopic(settings)


@pytest.mark.long
async def test_a_worker_forgets_old_statuses_and_a_new_listener_knows_the_halts(
    settings: Settings, runs_topic: RunsTopic, start_worker: Callable[..., WorkerProcess]
) -> None:
    topics = Topics(settings)
    worker = start_worker(settings, before=EAGER)
    await topics.send([*honest_run("held"), *looping_run("lost")])
    await until(lambda: worker.said("halt run=lost"), 60)
    await topics.done()
    await runs_topic.write(
        ("gone", "finished", DAY_MS + HOUR_MS), ("gone-halted", "halted", 31 * DAY_MS),
        ("kept", "finished", DAY_MS - HOUR_MS), ("kept-halted", "halted", 29 * DAY_MS),
        ("kept-running", "running", 29 * DAY_MS), ("held", "finished", 2 * DAY_MS),
        ("reopened", "finished", 2 * DAY_MS), ("reopened", "running", 0), ("lost", None, 0),
    )  # fmt: skip

    async def restored() -> bool:
        return (await runs_topic.latest())["lost"] == "halted" and len(await runs_topic.forgotten()) >= 2

    await until(restored, 60, "two tombstones, and the status of a run that is still halted")
    before = await runs_topic.latest()
    await runs_topic.write(*((f"later-{number}", "finished", 2 * DAY_MS) for number in range(20)))
    later = {f"later-{number}" for number in range(20)}

    async def swept_again() -> bool:
        return later <= await runs_topic.forgotten()

    await until(swept_again, 60, "one more sweep of each partition")
    assert await runs_topic.forgotten() == {"gone", "gone-halted"} | later
    assert {run_id: status for run_id, status in (await runs_topic.latest()).items() if run_id not in later} == before
    assert set(await statuses(settings)) == {"kept", "kept-halted", "kept-running", "held", "reopened", "lost"}
    assert await status_of_run(settings, "gone") is None
    async with HaltListener(settings=settings) as halts:
        known = halts._halts.runs
        assert set(known) == {"kept-halted", "lost"}
        assert known["lost"].code == "LOOP001", "the status that was published again says why"


@pytest.mark.long
async def test_an_idle_halt_leaves_the_table_and_then_the_topic_by_a_signed_tombstone(
    settings: Settings, runs_topic: RunsTopic, start_worker: Callable[..., WorkerProcess]
) -> None:
    import time

    topics = Topics(settings)
    worker = start_worker(settings, before=NEVER)
    long_ago_ms = int(time.time() * 1000) - 31 * DAY_MS
    await send_at(settings, looping_run("stuck"), long_ago_ms)
    await until(lambda: worker.said("halt run=stuck"), 60)
    await topics.done()
    worker.end()
    await runs_topic.write(("stuck", "halted", 31 * DAY_MS))

    signed = settings.model_copy(update={"control_key": SecretStr(new_keys("workers", ed25519=False)[0].line())})
    start_worker(signed, before=EAGER)

    async def forgotten() -> bool:
        return await runs_topic.forgotten() == {"stuck"}

    await until(forgotten, 60, "a tombstone of the halt")
    changelog = await topics.read_topic(kafka_topics.changelog_topic(settings))
    assert [record.value for record in changelog if record.key == b"stuck"][-1] is None
    assert await status_of_run(settings, "stuck") is None
    [tombstone] = [record for record in await topics.read("runs") if record.value is None]
    assert record_signer(signed).check("runs", tombstone).partition == runs_topic.partition_of("stuck")


async def send_at(settings: Settings, records: list[tuple[bytes, bytes]], at_ms: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for place, (key, value) in enumerate(records):
            await producer.send_and_wait(settings.topic("turns"), value, key=key, timestamp_ms=at_ms + place)


async def test_a_worker_leaves_the_partitions_of_others_alone(
    settings: Settings, runs_topic: RunsTopic, start_worker: Callable[..., WorkerProcess]
) -> None:
    eager, never = start_worker(settings, before=EAGER), start_worker(settings, before=NEVER)

    def shares() -> list[set[int]]:
        last = [(re.findall(r"ready partitions=(\S+)", one.text) or ["-"])[-1] for one in (eager, never)]
        return [set(map(int, one.split(","))) if one != "-" else set() for one in last]

    def are_divided() -> bool:
        ours, theirs = shares()
        return bool(ours and theirs and not ours & theirs)

    await until(are_divided, 60, "each to have partitions")
    names = [f"run-{number}" for number in range(40)]
    await runs_topic.write(*((name, "finished", 2 * DAY_MS) for name in names))
    ours, theirs = shares()
    mine = {name for name in names if runs_topic.partition_of(name) in ours}
    assert {runs_topic.partition_of(name) for name in names} == ours | theirs

    async def are_gone() -> bool:
        return mine <= await runs_topic.forgotten()

    await until(are_gone, 60, "the tombstones of one worker")
    assert await runs_topic.forgotten() == mine
    never.end()
    await until(lambda: eager.said("ready partitions=0,1,2,3"), 60)

    async def all_are_gone() -> bool:
        return set(names) == await runs_topic.forgotten()

    await until(all_are_gone, 60, "the tombstones of what it took over")
