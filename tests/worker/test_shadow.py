"""A shadow: a worker with another policy on the same turns, on a real Kafka."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from streamproc.client import HaltListener
from streamproc.errors import InvalidSettings
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.reading import open_topic
from streamproc.policy import load_policy
from streamproc.replay.shadow import live_results
from streamproc.settings import Settings, load_settings
from tests.feeding import decisions
from tests.waiting import until
from tests.worker.running import Topics, WorkerProcess, gather_controls

STRICT = "name: strict\ndetectors: {LOOP001: {halt: 2}}\n"
TURNS = [{"type": "turn", "run_id": "r", "node": "coder", "output": f"Attempt {number // 2}."} for number in range(4)]


async def records(settings: Settings, name: str) -> list[bytes]:
    async with open_topic(settings, name) as reader:
        return [record.value or b"" async for batch in reader.batches() for record in batch]


async def both_are_known(settings: Settings) -> bool:
    lives, turns = await live_results(settings, "strict")
    return turns == {"r": len(TURNS)} and bool(lives[1].result.halts)


async def test_a_shadow_decides_by_its_policy_and_stops_nothing(brokers: str, tmp_path: Path) -> None:
    (tmp_path / "strict.yaml").write_text(STRICT)
    real = load_settings(brokers=brokers, topic_prefix=f"shadow-{uuid.uuid4().hex[:8]}", session_timeout_s=6)
    shadow = real.model_copy(update={"shadow": "strict", "policy": str(tmp_path / "strict.yaml")})
    for settings in (real, shadow):
        await kafka_topics.apply(settings)
    workers = [WorkerProcess(one, tmp_path / f"{one.worker_group}.log").start() for one in (real, shadow)]
    try:
        for worker in workers:
            await worker.ready()
        async with AIOKafkaProducer(bootstrap_servers=brokers) as producer:
            for turn in TURNS:
                await producer.send_and_wait(real.topic("turns"), orjson.dumps(turn), key=b"r")
        expected = {one.id for one in decisions(TURNS, load_policy(shadow.policy))}
        await gather_controls(Topics(real), {one.id for one in decisions(TURNS)})
        found = await gather_controls(Topics(shadow), expected)
        assert {one["id"] for one in found} == expected
        assert found[0]["severity"] == "halt"
        await until(lambda: both_are_known(real), 20, "the statuses of both")
        [workers_, shadow_], turns = await live_results(real, "strict")
    finally:
        for worker in workers:
            worker.end(signal.SIGTERM)
    assert turns == {"r": len(TURNS)}
    assert (workers_.result.halts, shadow_.result.halts) == ({}, {"r": ("LOOP001", 1, 2, 0, 0)})
    assert (workers_.ref.name, shadow_.ref.name) == ("standard", "strict")
    assert [orjson.loads(value)["severity"] for value in await records(real, "control")] == ["warn", "warn"]
    assert [orjson.loads(value)["status"] for value in await records(real, "runs")][-1] == "running"
    assert [orjson.loads(value)["status"] for value in await records(shadow, "runs")][-1] == "halted"
    assert len(await records(real, "turns")) == len(TURNS)


def test_a_guard_refuses_to_follow_a_shadow() -> None:
    halts = HaltListener(settings=load_settings(shadow="strict"), wait=False)
    with pytest.raises(InvalidSettings, match="STREAMPROC_SHADOW is strict: a guard must follow the real workers"):
        halts.guard("r")


def test_a_shadow_has_topics_of_its_own_except_those_that_it_reads() -> None:
    shadow = load_settings(shadow="strict")
    assert [shadow.topic(name) for name in ("turns", "commands", "control")] == [
        "streamproc.turns", "streamproc.commands", "streamproc.shadow-strict.control",
    ]  # fmt: skip
    assert shadow.worker_group == "streamproc-worker-shadow-strict"
