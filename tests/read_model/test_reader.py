"""The reader on a real broker: to the ends, live, through an outage, past forgeries, from a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import NewPartitions

from deploy.local.kafka import Broker
from streamproc.kafka import follow, topics
from streamproc.kafka.options import connection_options
from streamproc.kafka.topics import accounts_topic
from streamproc.policy import load_policy
from streamproc.read_model import one_run
from streamproc.read_model.model import ReadModel
from streamproc.read_model.one_run import read_run
from streamproc.read_model.reader import ModelReader
from streamproc.read_model.rows import DecisionFilter, RunFilter
from streamproc.report import report_of
from streamproc.settings import Settings, load_settings
from tests.kafka.deleted_topics import delete_topics
from tests.read_model.deployment import PARTITIONS, Deployment, turn
from tests.read_model.tables import rows_of
from tests.read_model.test_model import busy, start
from tests.waiting import until


@pytest.fixture
async def settings(brokers: str, topic_prefix: str, nobodys_settings: None) -> Settings:
    """A deployment that only this test uses, with its topics."""
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=PARTITIONS)
    await topics.apply(settings)
    return settings


async def publish(settings: Settings, deployment: Deployment, after: dict[Any, int] | None = None) -> dict[Any, int]:
    """Write what a deployment has written since `after` to the topics, in its order; return how far it got."""
    written = dict(after or {})
    records: list[tuple[str, ConsumerRecord]] = []
    for (role, number), log in deployment.log.items():
        records += [(role, one) for one in log[written.get((role, number), 0) :]]
        written[role, number] = len(log)
    async with AIOKafkaProducer(**connection_options(settings), enable_idempotence=True) as producer:
        for role, one in sorted(records, key=lambda pair: pair[1].timestamp):
            name = accounts_topic(settings) if role == "accounts" else settings.topic(role)
            await producer.send_and_wait(name, one.value, one.key, partition=one.partition, headers=list(one.headers))
    return written


async def publish_a_loop(settings: Settings, deployment: Deployment, written: dict[tuple[str, int], int]) -> None:
    """Let the honest run loop, until a worker halts it."""
    for number in range(6, 9):
        deployment.send(turn("honest", number, "I will try again."))
    await publish(settings, deployment, written)


@asynccontextmanager
async def reading(settings: Settings, model: ReadModel, since_ms: int = 0) -> AsyncIterator[ModelReader]:
    reader = ModelReader(settings, model, since_ms=since_ms)
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


def ids(model: ReadModel, group: Any) -> list[str]:
    return [row.run_id for row in model.runs(group, RunFilter()).rows]


async def test_it_reads_to_the_ends_and_then_live(settings: Settings) -> None:
    deployment = busy()
    written = await publish(settings, deployment)
    model = ReadModel()
    async with reading(settings, model) as reader, asyncio.timeout(60):
        changes = reader.subscribe()
        await until(lambda: reader.caught_up)
        assert reader.progress == 1.0
        assert reader.missing == ()
        assert {one.topic for one in model.health() if one.position} >= {"runs", "control", "turns"}
        assert ids(model, "halted") == ["halted"]
        assert model.counts(int(time.time() * 1000)).caught_up
        assert {one.behind for one in model.health()} == {0}
        while "halted" not in await changes.changed():
            pass

        await publish_a_loop(settings, deployment, written)

        while "honest" not in await changes.changed():
            pass
        await until(lambda: model.run("honest").status == "halted")
    model.close()


async def test_a_run_is_read_from_the_log_and_replayed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = busy()
    start(deployment, "long", workflow="nightly")
    for number in range(100, 400):
        deployment.send(turn("long", number))
        deployment.send(turn("honest", number))
    for number in range(3):
        deployment.send(turn("long", 1_000 + number, "I will try again."))
    await publish(settings, deployment)
    policy = load_policy("standard")
    monkeypatch.setattr(one_run, "FIRST_WINDOW", 50)
    with_turns, without, nothing = ReadModel(), ReadModel(turns=False), ReadModel()
    async with reading(settings, with_turns) as one, reading(settings, without) as other:
        await until(lambda: one.caught_up and other.caught_up)

    [wanted] = with_turns.decisions(DecisionFilter(run_id="long", severity="halt"))
    for model in (with_turns, without, nothing):
        recording = await read_run(settings, policy, "long", model=model)
        history = recording.histories["long"]
        assert (history.turns, recording.left_out) == (303, 0)
        assert [one.id for one in history.decisions if one.severity == "halt"] == [wanted.id]
        assert set(recording.histories) == {"long"}

        recording = await read_run(settings, policy, "long", model=model, turns_max=40)
        assert recording.histories["long"].turns == 40
        assert with_turns.point_before("long", 40).number == 192  # a model that has read the turns knows where to begin
        if model is with_turns:
            assert recording.histories["long"].scope.workflow == "nightly"  # from its start, long before
        if model is not nothing:
            assert recording.left_out == 263
            [note, *_] = report_of(recording, "long").notes
            assert note.startswith("The first 263 turns of the run were not read.")

    assert (await read_run(settings, policy, "never seen", model=with_turns)).histories == {}
    halted = (await read_run(settings, policy, "halted", model=with_turns)).histories["halted"]
    assert halted.halt is not None
    assert halted.scope.workflow == "nightly"


async def test_a_file_goes_on_where_it_was(settings: Settings, tmp_path: Path) -> None:
    path = str(tmp_path / "model.db")
    deployment = busy()
    written = await publish(settings, deployment)
    model = ReadModel(path)
    async with reading(settings, model) as reader:
        await until(lambda: reader.caught_up)
    model.close()
    await publish_a_loop(settings, deployment, written)

    again, fresh = ReadModel(path), ReadModel()
    assert ids(again, "halted") == ["halted"]  # before anything is read
    applied = len(again.decisions(DecisionFilter()))
    async with reading(settings, again) as one, reading(settings, fresh) as other:
        await until(lambda: one.caught_up and other.caught_up)

    assert rows_of(again) == rows_of(fresh)
    assert len(again.decisions(DecisionFilter())) == applied + 2
    again.close()


async def test_topics_that_were_made_again_are_read_from_nothing(settings: Settings, tmp_path: Path) -> None:
    path = str(tmp_path / "model.db")
    await publish(settings, busy())
    model = ReadModel(path)
    async with reading(settings, model) as reader:
        await until(lambda: reader.caught_up)
    model.close()
    await delete_topics(settings, *(one.name for one in topics.specs(settings)))
    await topics.apply(settings)
    deployment = Deployment()
    start(deployment, "new")
    await publish(settings, deployment)

    model = ReadModel(path)
    async with reading(settings, model) as reader:
        await until(lambda: reader.caught_up)
        assert (ids(model, "halted"), ids(model, "others")) == ([], ["new"])
        assert model.decisions(DecisionFilter()) == ()
    model.close()


@pytest.mark.long
async def test_a_broker_that_is_away_and_new_partitions_do_not_end_it(
    own_broker: Broker, topic_prefix: str, nobodys_settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.1)
    port = (await asyncio.to_thread(own_broker.start)).port
    settings = load_settings(brokers=f"127.0.0.1:{port}", topic_prefix=topic_prefix, partitions=PARTITIONS)
    await topics.apply(settings)
    deployment = busy()
    written = await publish(settings, deployment)
    model = ReadModel()
    async with reading(settings, model) as reader, asyncio.timeout(120):
        await until(lambda: reader.caught_up)
        own_broker.kill()
        await until(lambda: reader.trouble is not None, 60)
        assert ids(model, "halted") == ["halted"]
        await asyncio.to_thread(own_broker.start, port)
        await until(lambda: reader.trouble is None, 60)
        await publish_a_loop(settings, deployment, written)
        await until(lambda: len(ids(model, "halted")) == 2)

        async with topics.administering(settings) as admin:
            await admin.create_partitions({settings.topic("control"): NewPartitions(PARTITIONS + 1)})
        await until(lambda: ("control", PARTITIONS) in model.ends, 60)
        forged = deployment.records("control")[0]
        value = forged.value.replace(b'"id":"', b'"id":"moved-')
        async with AIOKafkaProducer(**connection_options(settings)) as producer:
            await producer.send_and_wait(settings.topic("control"), value, forged.key, partition=PARTITIONS)
        await until(lambda: [row for row in model.decisions(DecisionFilter()) if row.id.startswith("moved-")])


async def test_what_is_older_than_since_is_not_read(settings: Settings) -> None:
    deployment = busy()
    written = await publish(settings, deployment)
    since_ms = int(time.time() * 1000) + 1
    await until(lambda: time.time() * 1000 > since_ms)
    await publish_a_loop(settings, deployment, written)
    model = ReadModel()
    async with reading(settings, model, since_ms) as reader:
        await until(lambda: reader.caught_up)

    assert {row.run_id for row in model.decisions(DecisionFilter())} == {"honest"}
    assert sorted(ids(model, "halted")) == ["halted", "honest"]  # the statuses say why
    halted = model.run("halted")
    assert halted.code == "LOOP001"
