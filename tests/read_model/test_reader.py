"""The reader on a real broker: to the ends, live, through an outage, past forgeries, from a file."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from streamproc.kafka import topics
from streamproc.kafka.options import connection_options
from streamproc.kafka.topics import accounts_topic
from streamproc.policy import load_policy
from streamproc.read_model import DecisionFilter, ModelReader, ReadModel, RunFilter, one_run, read_run
from streamproc.report import report_of
from streamproc.settings import Settings, load_settings
from tests.read_model.deployment import PARTITIONS, Deployment, turn
from tests.read_model.test_model import busy
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiokafka import ConsumerRecord


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
    producer = AIOKafkaProducer(**connection_options(settings), enable_idempotence=True)
    await producer.start()
    try:
        for role, one in sorted(records, key=lambda pair: pair[1].timestamp):
            name = accounts_topic(settings) if role == "accounts" else settings.topic(role)
            await producer.send_and_wait(name, one.value, one.key, partition=one.partition, headers=list(one.headers))
    finally:
        await producer.stop()
    return written


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

        for number in range(6, 9):
            deployment.send(turn("honest", number, "I will try again."))
        await publish(settings, deployment, written)

        while "honest" not in await changes.changed():
            pass
        await until(lambda: model.run("honest").status == "halted")
    model.close()


async def test_a_run_is_read_from_the_log_and_replayed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = busy()
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
        if model is not nothing:
            assert recording.left_out == 263
            [note, *_] = report_of(recording, "long").notes
            assert note.startswith("The first 263 turns of the run were not read.")

    assert (await read_run(settings, policy, "never seen", model=with_turns)).histories == {}
    halted = (await read_run(settings, policy, "halted", model=with_turns)).histories["halted"]
    assert halted.halt is not None
    assert halted.scope.workflow == "nightly"
