"""The publisher with a real broker."""

from __future__ import annotations

import pytest

from streamproc.client import TurnPublisher
from streamproc.errors import Unavailable
from streamproc.kafka import topics
from streamproc.model import wire
from streamproc.settings import Settings, load_settings
from tests.client.records import distinct, open_worker, read_all, turns_on
from tests.waiting import until

MINUTE_MS = 60_000


@pytest.mark.kafka
async def test_turns_arrive_keyed_by_run_and_in_order(settings: Settings) -> None:
    async with TurnPublisher(settings=settings) as turns:
        for seq in range(300):
            await turns.turn(run_id=f"run-{seq % 7}", node="coder", seq=seq, output=f"try {seq}")
        assert await turns.flush(30)
        assert (turns.delivered, turns.dropped, turns.waiting) == (300, 0, 0)

    records = await read_all(settings)
    events = [wire.decode(record.value or b"") for record in records]
    assert [record.key for record in records] == [event.run_id.encode() for event in events]
    assert len({record.partition for record in records}) > 1
    partitions = {(record.key, record.partition) for record in records}
    assert len(partitions) == 7  # a run is in one partition
    assert distinct(events) == {f"run-{n}": list(range(n, 300, 7)) for n in range(7)}


@pytest.mark.kafka
async def test_runs_are_in_the_partitions_that_other_clients_choose(settings: Settings) -> None:
    """Java, aiokafka and Faust hash keys alike, so all records of a run are in one partition."""
    keys = [f"läuft-{number}" for number in range(50)]
    async with TurnPublisher(settings=settings) as turns:
        for key in keys:
            await turns.turn(run_id=key, node="coder")
    ours = {record.key: record.partition for record in await read_all(settings)}

    async with open_worker(settings) as plain:
        for key in keys:
            await plain.write("turns", key, b"plain")
    theirs = {record.key: record.partition for record in await read_all(settings) if record.value == b"plain"}

    assert ours == theirs


@pytest.mark.kafka
async def test_every_kind_of_event_arrives(settings: Settings) -> None:
    async with TurnPublisher(settings=settings) as turns:
        await turns.run_started(run_id="r", workflow="fix", tier="pro", budgets={"maxSteps": 5})
        await turns.user_message(run_id="r")
        await turns.event("task.created", run_id="r", task_id="T1", depends_on=["T0"])
        await turns.send({"run_id": "r", "node": "coder"})
        await turns.operator_stop(run_id="r", by="ann", reason="enough")
        await turns.run_finished(run_id="r", status="aborted")

    events = await turns_on(settings)
    assert [event.type for event in events] == [
        "run.started", "user.message", "task.created", "turn", "operator.stop", "run.finished",
    ]  # fmt: skip
    started, _, created, _, stop, finished = events
    assert isinstance(started, wire.RunStarted)
    assert (started.workflow, started.tier) == ("fix", "pro")
    assert isinstance(created, wire.TaskCreated)
    assert (created.task_id, created.depends_on) == ("T1", ("T0",))
    assert isinstance(stop, wire.OperatorStop)
    assert (stop.by, stop.reason) == ("ann", "enough")
    assert isinstance(finished, wire.RunFinished)
    assert finished.status == "aborted"


@pytest.mark.kafka
async def test_closing_delivers_the_buffered_events(settings: Settings) -> None:
    async with TurnPublisher(settings=settings, close_timeout_s=30) as turns:
        for seq in range(50):
            await turns.turn(run_id="r", node="coder", seq=seq)

    assert (turns.delivered, turns.dropped) == (50, 0)
    assert distinct(await turns_on(settings)) == {"r": list(range(50))}


@pytest.mark.kafka
async def test_a_publisher_that_waits_for_space_loses_nothing(settings: Settings) -> None:
    async with TurnPublisher(settings=settings, buffer_max=20, block_ms_max=MINUTE_MS) as turns:
        for seq in range(500):
            await turns.turn(run_id="r", node="coder", seq=seq)
        assert await turns.flush(30)

    assert turns.dropped == 0
    assert distinct(await turns_on(settings)) == {"r": list(range(500))}


@pytest.mark.kafka
async def test_an_event_that_the_broker_refuses_does_not_block_others(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    larger = settings.model_copy(update={"event_bytes_max": 8_000_000})
    async with TurnPublisher(settings=larger, include_content=True) as turns:
        for seq in range(9):
            await turns.turn(run_id="r", node="coder", seq=seq, output="x" * (3_000_000 if seq == 4 else 10))
        assert await turns.flush(30)
        assert (turns.delivered, turns.dropped) == (8, 1)

    assert distinct(await turns_on(settings)) == {"r": [0, 1, 2, 3, 5, 6, 7, 8]}
    assert sum("refused an event of 300" in record.message for record in caplog.records) == 1


@pytest.mark.kafka
async def test_missing_topics_are_named_and_not_created(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    async with TurnPublisher(settings=settings) as turns:
        await turns.turn(run_id="r", node="coder")
        trouble = await until(lambda: turns.trouble, what="the missing topic")
        assert isinstance(trouble, Unavailable)
        assert settings.topic("turns") in str(trouble)
        assert "streamproc topics apply" in str(trouble)
        assert settings.topic("turns") in (await topics.check(settings)).missing

        await topics.apply(settings)
        assert await turns.flush(60)
        assert turns.trouble is None

    assert distinct(await turns_on(settings)) == {"r": [0]}
