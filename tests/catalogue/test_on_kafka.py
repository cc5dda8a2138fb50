"""Every detector from the turns topic to the control topic, with real Kafka and a real worker: the ids match `scan`.

What concerns the runs of a session comes back to each run later than in `scan`, when that one may be over. So of these
detectors, the sessions match.
"""

from __future__ import annotations

import signal
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from streamproc.core.decision import encode_decision
from streamproc.kafka import topics as kafka_topics
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.settings import Settings, load_settings
from tests.catalogue.examples import CODES, lines, policy, stuck
from tests.worker.running import Topics, WorkerProcess, gather_controls, run_sync

Controls = dict[str, list[dict[str, Any]]]
OF_SESSIONS = "TREE"  # codes of detectors that see several runs


async def send(settings: Settings, records: list[bytes]) -> None:
    """Send raw turns with the times of the file, as an importer does."""
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers, enable_idempotence=True) as producer:
        for value in records:
            raw = orjson.loads(value)
            await producer.send(settings.topic("turns"), value, key=raw["run_id"].encode(), timestamp_ms=raw["at"])
        await producer.flush()


def fact(decision: dict[str, Any]) -> str:
    """Return what must be the same in a scan and on Kafka."""
    code: str = decision["code"]
    return f"{code} {decision['workflow']}" if code.startswith(OF_SESSIONS) else str(decision["id"])


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Controls:
    """Return the decisions of a scan of the same log, by code."""
    file = tmp_path_factory.mktemp("catalogue") / "turns.jsonl"
    file.write_bytes(b"\n".join(lines(stuck())))
    found: Controls = defaultdict(list)
    for decision in Scan([Source(file)], load_policy(policy())):
        found[decision.code].append(orjson.loads(encode_decision(decision)))
    return found


@pytest.fixture(scope="module")
def reported(brokers: str, scanned: Controls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controls]:
    """Return the control events after all examples, by code."""
    prefix = f"catalogue-{uuid.uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("worker")
    rules = folder / "policy.yaml"
    rules.write_bytes(orjson.dumps(policy()))
    settings = load_settings(
        brokers=brokers, topic_prefix=prefix, timestamp_type="CreateTime", policy=str(rules), partitions=1
    )
    run_sync(kafka_topics.apply(settings))
    worker = WorkerProcess(settings, folder / "worker.log").start()

    async def play() -> Controls:
        await worker.ready()
        await send(settings, lines(stuck()))
        found: Controls = defaultdict(list)
        wanted = {fact(one) for of in scanned.values() for one in of}
        for control in await gather_controls(Topics(settings), wanted, fact=fact):
            found[control["code"]].append(control)
        return found

    yield run_sync(play())
    worker.end(signal.SIGKILL)


@pytest.mark.parametrize("code", CODES)
def test_it_is_reported_on_kafka(reported: Controls, scanned: Controls, code: str) -> None:
    expected = {fact(one) for one in scanned[code]}
    assert expected
    assert {fact(control) for control in reported[code]} == expected
    assert all(control["trigger"]["offset"] >= 0 for control in reported[code])


def test_nothing_else_is_reported(reported: Controls, scanned: Controls) -> None:
    assert reported.keys() == scanned.keys()
