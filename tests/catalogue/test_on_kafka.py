"""Every detector from the turns topic to the control topic, with real Kafka and a real worker: the ids match `scan`."""

from __future__ import annotations

import signal
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from streamproc.kafka import topics as kafka_topics
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.settings import Settings, load_settings
from tests.catalogue.examples import CODES, lines, policy, stuck
from tests.worker.running import Topics, WorkerProcess, gather_controls, run_sync

Controls = dict[str, list[dict[str, Any]]]


async def send(settings: Settings, records: list[bytes]) -> None:
    """Send raw turns with the times of the file, as an importer does."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.brokers, enable_idempotence=True)
    await producer.start()
    try:
        for value in records:
            raw = orjson.loads(value)
            await producer.send(settings.topic("turns"), value, key=raw["run_id"].encode(), timestamp_ms=raw["at"])
        await producer.flush()
    finally:
        await producer.stop()


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the code of every decision in a scan of the same log, by id."""
    file = tmp_path_factory.mktemp("catalogue") / "turns.jsonl"
    file.write_bytes(b"\n".join(lines(stuck())))
    return {decision.id: decision.code for decision in Scan([Source(file)], load_policy(policy()))}


@pytest.fixture(scope="module")
def reported(brokers: str, scanned: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controls]:
    """Return the control events after all examples, by code."""
    prefix = f"catalogue-{uuid.uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("worker")
    rules = folder / "policy.yaml"
    rules.write_bytes(orjson.dumps(policy()))
    settings = load_settings(brokers=brokers, topic_prefix=prefix, timestamp_type="CreateTime", policy=str(rules))
    run_sync(kafka_topics.apply(settings))
    worker = WorkerProcess(settings, folder / "worker.log").start()

    async def play() -> Controls:
        await worker.ready()
        await send(settings, lines(stuck()))
        found: Controls = defaultdict(list)
        for control in await gather_controls(Topics(settings), set(scanned)):
            found[control["code"]].append(control)
        return found

    yield run_sync(play())
    worker.end(signal.SIGKILL)


@pytest.mark.parametrize("code", CODES)
def test_it_is_reported_on_kafka(reported: Controls, scanned: dict[str, str], code: str) -> None:
    expected = {identity for identity, of in scanned.items() if of == code}
    assert expected
    assert {control["id"] for control in reported[code]} >= expected
    assert all(control["trigger"]["offset"] >= 0 for control in reported[code])


def test_nothing_else_is_reported(reported: Controls, scanned: dict[str, str]) -> None:
    assert {control["id"] for controls in reported.values() for control in controls} == set(scanned)
