"""A worker says that it lives, what it decides on, and how far it is; on a real Kafka."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from streamproc.fleet.keyring import new_keys
from streamproc.fleet.record_signing import LogPlace, record_signer
from streamproc.fleet.workers import FORGET_AFTER_MS, ROLE, Workers
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.options import connection_options
from streamproc.model.heartbeat import Heartbeat, encode_heartbeat, read_heartbeat
from streamproc.policy import load_policy
from streamproc.settings import Settings
from tests.fleet.heartbeats import heartbeat
from tests.kafka.deleted_topics import delete_topics
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, WorkerProcess, honest_run, looping_run


async def heartbeats(topics: Topics) -> list[Heartbeat]:
    """All that are on the topic, in order."""
    return [read_heartbeat(record.value, record.key) for record in await topics.read(ROLE) if record.value is not None]


async def heard(topics: Topics, wanted: Callable[[Heartbeat], object], what: str = "a heartbeat") -> Heartbeat:
    """The last heartbeat, once it is as it is wanted."""

    async def last() -> Heartbeat | None:
        found = await heartbeats(topics)
        return found[-1] if found and wanted(found[-1]) else None

    found = await until(last, 60, what, every_s=0.2)
    assert found is not None
    return found


async def write(settings: Settings, key: bytes, value: bytes, **options: Any) -> None:
    """Write a record to the topic."""
    async with AIOKafkaProducer(**connection_options(settings)) as producer:
        await producer.send_and_wait(settings.topic(ROLE), value, key=key, **options)


async def test_a_worker_says_what_it_decides_on_how_far_it_is_and_that_it_stops(settings, topics, start_worker) -> None:
    before_ms = time.time() * 1000
    worker = start_worker(settings.model_copy(update={"instance": "worker-0"}))
    await topics.send([*looping_run("r"), *honest_run("s")])
    await topics.done()
    _, found = await topics.offsets()
    ends = [end for _, end in sorted(found.items())]

    beat = await heard(
        topics,
        lambda one: one.decided_at and one.positions == ends,
        "its positions",
    )

    policy = load_policy(settings.policy)
    assert (beat.worker, beat.state, beat.of, beat.partitions) == ("worker-0", "deciding", 4, [0, 1, 2, 3])
    assert (beat.policy, beat.policy_hash, beat.shadow, beat.lagging) == (policy.name, policy.hash, "", [])
    assert beat.deciding_at == beat.at
    assert before_ms - 1_000 < beat.started < beat.decided_at < beat.at
    assert worker.end() == 0
    [*_, last] = await heartbeats(topics)
    assert (last.state, last.partitions, last.positions) == ("stopped", [0, 1, 2, 3], ends)


@pytest.mark.long
async def test_a_killed_worker_says_nothing_and_its_successor_what_it_had(settings, topics, start_worker) -> None:
    named = settings.model_copy(update={"instance": "worker-0"})
    first = start_worker(named)
    await topics.send(honest_run("s"))
    await topics.done()
    killed = await heard(topics, lambda one: sum(one.positions) == 6)
    first.end(signal.SIGKILL)
    assert (await heartbeats(topics))[-1].state == "deciding"

    second = start_worker(named)

    again = await heard(topics, lambda one: one.started > killed.started)
    assert (again.state, again.partitions, again.positions) == ("restoring", killed.partitions, killed.positions)
    assert killed.deciding_at <= again.deciding_at < again.at
    await heard(topics, lambda one: one.state == "deciding" and one.positions == killed.positions)
    assert second.end() == 0


async def test_heartbeats_are_signed_if_a_control_key_is_set(brokers, topic_prefix, start_worker) -> None:
    key, public = new_keys("workers", ed25519=True)
    settings = settings_for(brokers, topic_prefix, control_key=key.line())
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    worker = start_worker(settings)
    beat = await heard(topics, lambda one: one.state == "deciding")
    assert worker.end(signal.SIGKILL) == -signal.SIGKILL
    forged = encode_heartbeat(heartbeat("forged", beat.at + 1_000))
    await write(settings, b"forged", forged)

    reader = settings.model_copy(
        update={"control_key": settings_for(brokers, "p", control_key=public.line()).control_key}
    )
    workers = Workers(record_signer(reader))
    for record in await topics.read(ROLE):
        workers.apply(record, 0.0)

    assert [row.heartbeat.worker for row in workers.rows()] == [beat.worker]
    assert workers.refused == 1


async def test_a_worker_removes_others_that_were_silent_for_a_day(brokers, topic_prefix, start_worker) -> None:
    now_ms = int(time.time() * 1000)
    settings = settings_for(brokers, topic_prefix)
    # The broker's time cannot be chosen: on this topic, heartbeats keep that of their sender.
    own_time = {**kafka_topics.HEARTBEATS, "message.timestamp.type": "CreateTime"}
    async with kafka_topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(settings.topic(ROLE), 1, 1, topic_configs=own_time)])
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    for beat in (heartbeat("old", now_ms - FORGET_AFTER_MS - 60_000), heartbeat("young", now_ms)):
        await write(settings, beat.worker.encode(), encode_heartbeat(beat), timestamp_ms=beat.at)

    worker = start_worker(settings)
    await worker.ready()

    async def removed() -> list[bytes]:
        return [record.key for record in await topics.read(ROLE) if record.value is None]

    assert await until(removed, 60, "a tombstone", every_s=0.2) == [b"old"]


async def test_a_worker_works_without_the_topic_and_says_so_once(settings, topics, start_worker) -> None:
    await delete_topics(settings, settings.topic(ROLE))
    worker = start_worker(settings)
    await topics.send(looping_run("r"))
    await topics.done()
    await until(lambda: worker.said("cannot see it: run `streamproc topics apply`"), 30)
    assert len(await topics.controls()) == 2
    assert worker.end() == 0
    assert worker.text.count("cannot see it") == 1
    assert settings.topic(ROLE) not in await kafka_topics.partitions(settings)  # and none was made by accident


async def test_a_frozen_worker_goes_on_with_its_heartbeats(settings, topics, start_worker) -> None:
    worker: WorkerProcess = start_worker(settings)
    await heard(topics, lambda one: one.state == "deciding")
    worker.send(signal.SIGSTOP)
    frozen = len(await heartbeats(topics))
    worker.send(signal.SIGCONT)

    async def more() -> bool:
        return len(await heartbeats(topics)) > frozen

    await until(more, 30, "another heartbeat", every_s=0.2)
    assert worker.end() == 0


async def test_a_shadow_gives_its_heartbeats_on_a_topic_of_its_own(settings, topics, start_worker) -> None:
    shadow = settings.model_copy(update={"shadow": "stricter"})
    await kafka_topics.apply(shadow)
    worker = start_worker(shadow)
    beat = await heard(Topics(shadow), lambda one: one.state == "deciding")
    assert beat.shadow == "stricter"
    assert await topics.read(ROLE) == []
    assert worker.end() == 0


def test_a_place_of_no_event_can_be_signed() -> None:
    key, _ = new_keys("workers", ed25519=True)
    settings = settings_for("localhost:9092", "p", control_key=key.line())
    assert record_signer(settings).sign(ROLE, b"w", b"{}", LogPlace(-1, -1, 1))[0] == "signature"
