"""The topics: their settings, which `apply` creates without changing existing topics."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from deploy.local.kafka import free_port
from streamproc import HaltListener, TurnPublisher
from streamproc.kafka import session, topics
from streamproc.kafka.topic_drift import TopicSpec
from streamproc.kafka.vendor import network_client
from streamproc.settings import load_settings
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import WorkerProcess

DAY_MS = 86_400_000


def by_name(**options: object) -> dict[str, TopicSpec]:
    settings = load_settings(topic_prefix="p", **options)
    return {spec.name.removeprefix("p."): spec for spec in topics.specs(settings)}


def test_every_topic_of_runs_has_the_same_number_of_partitions() -> None:
    specs = by_name(partitions=12)
    assert set(specs) == {
        "turns", "control", "runs", "commands", "spend", "dead-letter", "p-worker-runs-changelog",
        "p-worker-accounts-changelog", "workers", "activity",
    }  # fmt: skip
    assert specs.pop("workers").partitions == 1
    assert {spec.partitions for spec in specs.values()} == {12}


def test_logs_have_a_retention_and_statuses_are_compacted() -> None:
    specs = by_name()
    policies = {name: spec.config["cleanup.policy"] for name, spec in specs.items()}
    kept = {
        name: int(spec.config["retention.ms"]) // DAY_MS
        for name, spec in specs.items()
        if "retention.ms" in spec.config
    }
    assert policies == {
        "turns": "delete", "control": "delete", "dead-letter": "delete", "spend": "delete",
        "runs": "compact", "p-worker-runs-changelog": "compact",
            "p-worker-accounts-changelog": "compact", "commands": "compact", "workers": "compact",
        "activity": "compact,delete",
    }  # fmt: skip
    assert kept == {"turns": 7, "control": 30, "dead-letter": 30, "spend": 2, "activity": 1}


@pytest.mark.parametrize(("clock", "kept_ms"), [("LogAppendTime", 7 * DAY_MS), ("CreateTime", -1)])
def test_the_turns_topic_keeps_the_clock_that_the_settings_name(clock: str, kept_ms: int) -> None:
    """And an imported log is kept: its own times are long past any retention."""
    config = by_name(timestamp_type=clock)["turns"].config
    assert config["message.timestamp.type"] == clock
    assert config["retention.ms"] == str(kept_ms)


def test_with_three_replicas_two_must_acknowledge_a_record() -> None:
    assert "min.insync.replicas" not in by_name()["control"].config
    assert all(spec.config["min.insync.replicas"] == "2" for spec in by_name(replication_factor=3).values())


async def test_apply_creates_the_topics_once_and_check_finds_no_drift(brokers, topic_prefix) -> None:
    settings = settings_for(brokers, topic_prefix, partitions=2)
    names = {spec.name for spec in topics.specs(settings)}
    assert set((await topics.check(settings)).missing) == names

    first, second = await topics.apply(settings), await topics.apply(settings)

    assert set(first.created) == names
    assert first.ok
    assert (second.created, set(second.present)) == ((), names)
    assert (await topics.check(settings)).ok
    assert await topics.partitions(settings) == dict.fromkeys(names, 2) | {settings.topic("workers"): 1}


async def test_no_request_creates_more_partitions_than_a_controller_allows(brokers, topic_prefix, monkeypatch) -> None:
    requests: list[int] = []

    async def counted(admin: AIOKafkaAdminClient, new: list[NewTopic], **options: object) -> object:
        requests.append(sum(one.num_partitions for one in new))
        return await create(admin, new, **options)

    create = AIOKafkaAdminClient.create_topics
    monkeypatch.setattr(AIOKafkaAdminClient, "create_topics", counted)
    monkeypatch.setattr(topics, "REQUEST_PARTITIONS_MAX", 5)
    settings = settings_for(brokers, topic_prefix, partitions=2)

    report = await topics.apply(settings)

    assert report.ok
    assert len(report.created) == len(topics.specs(settings))
    assert requests == [4, 4, 3, 4, 4]


async def test_a_controller_takes_as_many_partitions_as_a_request_has_and_refuses_10_001(brokers, topic_prefix) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        for partitions, taken in ((topics.REQUEST_PARTITIONS_MAX, True), (10_001, False)):
            asked = [NewTopic(f"{topic_prefix}-{number}", partitions // 3, 1) for number in range(3)]
            asked.append(NewTopic(f"{topic_prefix}-rest", 1 + partitions % 3, 1))
            answer = await admin.create_topics(asked, validate_only=True)
            assert {code == 0 for _, code, *_ in answer.topic_errors} == {taken}
    finally:
        await admin.close()


async def test_a_topic_that_differs_is_reported_and_not_changed(brokers, topic_prefix) -> None:
    settings = settings_for(brokers, topic_prefix, partitions=2)
    turns = settings.topic("turns")
    async with topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(turns, 3, 1, topic_configs={"retention.ms": "1000"})])

    for report in (await topics.apply(settings), await topics.check(settings)):
        drifts = {drift.setting: (drift.found, drift.wanted) for drift in report.drift if drift.topic == turns}
        assert drifts["partitions"] == ("3", "2")
        assert drifts["retention.ms"] == ("1000", str(7 * DAY_MS))
        assert drifts["message.timestamp.type"] == ("CreateTime", "LogAppendTime")
        assert not report.ok
    assert str(report.drift[0]).startswith(f"{turns}: ")


@pytest.fixture
def asked(monkeypatch) -> list[Any]:
    """The topics that clients of this process ask brokers for; None: all."""
    build = MetadataRequest.build
    found: list[Any] = []

    def noted(request: MetadataRequest, version: Any) -> Any:
        found.append(request._topics)
        return build(request, version)

    monkeypatch.setattr(MetadataRequest, "build", noted)
    return found


async def test_a_publisher_that_has_nothing_to_send_asks_for_its_own_topic(settings, asked, monkeypatch) -> None:
    """Its probe asks again and again."""
    monkeypatch.setattr(session, "PROBE_EVERY_S", 0.05)
    await topics.apply(settings)
    own = [settings.topic("turns")]
    async with TurnPublisher(settings=settings):
        await until(lambda: own in asked, 30, "the first request")  # a producer may ask for all while it gets its id
        asked.clear()
        await until(lambda: len(asked) > 9, 30, "more than nine requests")
    assert all(names == own for names in asked)


async def test_no_client_asks_for_the_topics_of_others(settings, tmp_path, asked) -> None:
    """A cluster may have thousands, and a client that reads what a broker says of them all blocks its agent."""
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    await worker.ready()
    report = await topics.apply(settings)
    assert report.ok
    async with TurnPublisher(settings=settings) as turns:
        for _ in range(6):
            await turns.turn(run_id="run", node="coder", output="the same")
        await turns.flush(30)
        async with HaltListener(settings=settings) as halts:
            await until(lambda: halts.halted("run"), 30, "the halt")
    assert await topics.partitions(settings)
    assert worker.end() == 0
    assert asked
    assert None not in asked


async def test_a_broker_that_is_gone_is_asked_in_vain_and_another_answers(settings, monkeypatch) -> None:
    async with topics.administering(settings) as admin:
        client = network_client(admin)
        [there] = client.cluster.brokers()
        gone = there._replace(nodeId=99, port=free_port())
        monkeypatch.setattr(client.cluster, "brokers", lambda: [there, gone])
        monkeypatch.setattr(client.cluster, "broker_metadata", {0: there, there.nodeId: there, 99: gone}.get)
        name = settings.topic("turns")
        for _ in range(10):  # in another order each time
            assert list(await topics.describe(client, [name, "missing"])) == [name, "missing"]
        monkeypatch.setattr(client.cluster, "brokers", lambda: [gone])
        with pytest.raises(KafkaError):
            await topics.describe(client, [name])
