"""Published before stored, stored before committable, however long the broker takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamproc.model.wire import Turn, Usage, encode
from streamproc.policy import load_policy
from streamproc.worker import partition_pipeline as pipeline_module, turn_processor as processor_module
from streamproc.worker.codec import decode_run
from streamproc.worker.limits import BACKLOG_RECORDS_MAX, SLICE_RECORDS_MAX
from streamproc.worker.partition_pipeline import PartitionPipeline, PartitionPipelines
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.waiting import until
from tests.worker.records import TOPIC, records_of
from tests.worker.running import honest_run, looping_run


class ScriptedBroker:
    """Accepts records and states when the test allows it, and remembers their order."""

    def __init__(self) -> None:
        self.may_publish = asyncio.Event()
        self.may_store = asyncio.Event()
        self.outgoing: list = []
        self.stores: list = []
        self.order: list[str] = []
        self.fails_with: Exception | None = None

    async def publish(self, _partition: int, outgoing: list) -> None:
        await self.may_publish.wait()
        if self.fails_with is not None:
            raise self.fails_with
        self.outgoing += outgoing
        self.order.append("published")

    async def store(self, _table: str, _partition: int, changes: list) -> int:
        self.order.append("storing")
        await self.may_store.wait()
        self.stores.append(changes)
        return sum(map(len, self.stores)) - 1


class Store:
    """The runs of partition 0."""

    def __init__(self) -> None:
        self.of_0 = Runs(0, RunLimits())

    def partition_of(self, _partition: int) -> Runs:
        return self.of_0

    def leave(self, _partition: int) -> None:
        self.of_0.leave()


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker()


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
async def pipelines(broker: ScriptedBroker, failures: list[BaseException]) -> AsyncIterator[PartitionPipelines]:
    processor = TurnProcessor(load_policy().engine(), TOPIC, event_bytes_max=4096, dead_letter_bytes=4096, version="1")
    pipelines = PartitionPipelines("runs", Store(), processor, broker, failures.append)
    yield pipelines
    pipelines.retain(set())


async def test_nothing_is_stored_before_it_is_published_nor_committable_before_it_is_stored(pipelines, broker) -> None:
    pipeline = pipelines[0]
    pipeline.accept(records_of(looping_run("r", 3), first=100))
    settling = asyncio.ensure_future(pipeline.settle())
    await asyncio.sleep(0)
    assert pipelines.committable() == {0: 100}

    broker.may_publish.set()
    await until(lambda: broker.order == ["published", "storing"])
    assert {record.topic for record in broker.outgoing} == {"control", "runs"}
    assert pipelines.committable() == {0: 100}

    broker.may_store.set()
    await settling
    assert pipelines.committable() == {0: 103}


async def test_a_decision_does_not_wait_for_the_states_before_it(pipelines, broker) -> None:
    pipeline = pipelines[0]
    broker.may_publish.set()
    pipeline.accept(records_of(honest_run("a", 1)))
    settling = asyncio.ensure_future(pipeline.settle())
    await until(lambda: "storing" in broker.order)

    pipeline.accept(records_of(looping_run("r", 3), first=1))

    await until(lambda: sum(record.topic == "control" for record in broker.outgoing) == 2)
    assert pipeline.committable == 0
    broker.may_store.set()
    await settling


async def test_a_state_is_stored_as_it_was_when_its_decisions_were_published(pipelines, broker) -> None:
    """Steps taken while an earlier decision is being published are not in the state written for that decision."""
    pipeline = pipelines[0]
    broker.may_store.set()
    pipeline.accept(records_of(looping_run("r", 2)))
    settling = asyncio.ensure_future(pipeline.settle())
    await until(lambda: not pipeline._runs.dirty)
    pipeline.accept(records_of(looping_run("r", 3)[2:], first=2))
    broker.may_publish.set()
    await settling
    await pipeline.settle()
    assert [decode_run(raw)[0].turns for changes in broker.stores for _, raw in changes] == [2, 3]


async def test_records_that_are_read_again_hold_up_nothing_and_are_published_before_they_are_stored(
    pipelines, broker
) -> None:
    """A rebalance may take an open pipeline back to an older committed offset."""
    pipeline = pipelines[0]
    broker.may_publish.set()
    broker.may_store.set()
    pipeline.accept(records_of(honest_run("r", 3)))
    await pipeline.settle()

    broker.may_publish.clear()
    pipeline.accept(records_of(looping_run("other", 1)))  # it has a status to publish
    settling = asyncio.ensure_future(pipeline.settle())
    stored = len(broker.stores)
    await until(lambda: not pipeline._runs.dirty)  # taken, to be stored
    await asyncio.sleep(0)
    assert len(broker.stores) == stored
    broker.may_publish.set()
    await settling
    await until(lambda: b"other" in {record.key for record in broker.outgoing})

    pipeline.accept(records_of(honest_run("r", 9)[3:], first=3))  # nothing to publish
    await asyncio.wait_for(pipeline.settle(), 5)
    assert pipelines.committable() == {0: 9}


async def test_slices_without_anything_to_publish_are_stored_together(pipelines, broker) -> None:
    pipeline = pipelines[0]
    broker.may_publish.set()
    broker.may_store.set()
    pipeline.accept(records_of(honest_run("r", 1)))
    await pipeline.settle()
    for number in range(1, 20):
        pipeline.accept(records_of(honest_run("r", 20)[number : number + 1], first=number))
    await pipeline.settle()
    assert [len(changes) for changes in broker.stores] == [1, 1]
    assert pipeline.committable == 20


async def test_a_partition_waits_when_the_broker_does_not_keep_up(pipelines, broker) -> None:
    pipeline: PartitionPipeline = pipelines[0]
    pair = honest_run("r", 1)
    for first in range(0, BACKLOG_RECORDS_MAX, SLICE_RECORDS_MAX):
        await asyncio.wait_for(pipeline.room(), 5)
        pipeline.accept(records_of(pair * SLICE_RECORDS_MAX, first=first))
    waiting = asyncio.ensure_future(pipeline.room())
    await asyncio.sleep(0)
    assert not waiting.done()

    broker.may_publish.set()
    broker.may_store.set()
    await waiting
    assert pipeline.backlog < BACKLOG_RECORDS_MAX


def of_a_session(turns: int, first: int = 0) -> list[Any]:
    raws = [Turn(w=1, run_id="r", node="a", session_id="s", usage=Usage(total_tokens=7)) for _ in range(turns)]
    return records_of([(b"r", encode(raw)) for raw in raws], first=first)


async def test_a_partition_that_lags_makes_one_statement_of_many_slices_and_publishes_it_before_its_states(
    pipelines, broker, monkeypatch
) -> None:
    monkeypatch.setattr(pipeline_module, "SLICE_RECORDS_MAX", 4)
    broker.may_publish.set()
    pipeline = pipelines[0]
    for first in range(0, 12, 4):
        pipeline.accept(of_a_session(4, first))
    await until(lambda: broker.outgoing, 5, "the status of the run")
    assert "spend" not in {record.topic for record in broker.outgoing}, "more turns are waiting"

    settling = asyncio.ensure_future(pipeline.settle())
    await until(lambda: "storing" in broker.order, 5, "the states to be stored")
    sessions = [json.loads(one.value) for one in broker.outgoing if (one.key or b"").startswith(b"session:")]
    assert [len(statement[4]) for statement in sessions] == [12]
    assert pipeline.committable == 0
    broker.may_store.set()
    await settling
    assert pipeline.committable == 12


async def test_a_partition_that_has_caught_up_charges_accounts_at_once(pipelines, broker, monkeypatch) -> None:
    monkeypatch.setattr(pipeline_module, "SLICE_RECORDS_MAX", 4)
    broker.may_publish.set()
    for first, count in ((0, 4), (4, 3)):
        pipelines[0].accept(of_a_session(count, first))
    await until(lambda: any(one.topic == "spend" for one in broker.outgoing), 5, "the statement")
    assert "storing" not in broker.order
    sessions = [json.loads(one.value) for one in broker.outgoing if (one.key or b"").startswith(b"session:")]
    assert [len(statement[4]) for statement in sessions] == [7]


async def test_a_partition_holds_back_so_many_charges_and_no_more(pipelines, broker, monkeypatch) -> None:
    monkeypatch.setattr(pipeline_module, "SLICE_RECORDS_MAX", 4)
    monkeypatch.setattr(processor_module, "HELD_CHARGES_MAX", 8)
    broker.may_publish.set()
    pipelines[0].accept(of_a_session(4))
    await asyncio.sleep(0)
    assert "spend" not in {record.topic for record in broker.outgoing}
    pipelines[0].accept(of_a_session(4, 4))
    await until(lambda: any(one.topic == "spend" for one in broker.outgoing), 5, "the statement")
    assert "storing" not in broker.order


async def test_charges_of_many_sessions_are_not_held_back(pipelines, broker, monkeypatch) -> None:
    """A statement for each of thousands of sessions would hold the loop for as long as many slices."""
    monkeypatch.setattr(pipeline_module, "SLICE_RECORDS_MAX", 4)
    monkeypatch.setattr(processor_module, "HELD_PAYERS_MAX", 8)
    broker.may_publish.set()
    for first in (0, 4):
        assert "spend" not in {record.topic for record in broker.outgoing}
        turns = [
            Turn(w=1, run_id=f"r{n}", node="a", session_id=f"s{n}", usage=Usage(total_tokens=7))
            for n in range(first, first + 4)
        ]
        pipelines[0].accept(records_of([(one.run_id.encode(), encode(one)) for one in turns], first=first))
        await asyncio.sleep(0)
    await until(lambda: any(one.topic == "spend" for one in broker.outgoing), 5, "the statements")
    assert "storing" not in broker.order


async def test_closing_a_pipeline_wakes_up_a_consumer_that_waits_for_room(pipelines, broker, monkeypatch) -> None:
    """The consumer reads all partitions: if it did not wake up, none would ever be read again."""
    monkeypatch.setattr(pipeline_module, "BACKLOG_RECORDS_MAX", 1)
    pipeline = pipelines[0]
    assert await pipeline.room()
    pipeline.accept(records_of(looping_run("r", 3)))
    waiting = asyncio.ensure_future(pipeline.room())
    await asyncio.sleep(0)
    pipelines.abandon()
    assert not await asyncio.wait_for(waiting, 5), "the records in hand are read again"


async def test_a_pipeline_that_stays_open_continues_where_another_worker_has_committed(pipelines, broker) -> None:
    broker.may_publish.set()
    broker.may_store.set()
    pipelines.accept(0, records_of(honest_run("r", 3)))
    await until(lambda: pipelines.committable() == {0: 3}, 5, "three records to be stored")

    pipelines[0].catch_up(2)
    assert pipelines.committable() == {0: 3}
    pipelines[0].catch_up(5)
    assert pipelines.committable() == {0: 5}
    assert pipelines[0].backlog == 0


async def test_a_pipeline_that_does_not_settle_in_time_is_dropped_and_its_records_are_processed_again(
    pipelines, broker
) -> None:
    pipelines[0].accept(records_of(looping_run("r", 3)))
    assert not await pipelines.settle(0)
    assert pipelines.committable() == {}
    assert pipelines[0]._runs.load(b"r") is None
    assert broker.order == []


async def test_a_broker_that_refuses_for_good_is_a_failure_of_the_worker(pipelines, broker, failures) -> None:
    broker.fails_with = PermissionError("not allowed to write")
    broker.may_publish.set()
    pipelines[0].accept(records_of(looping_run("r", 3)))
    await until(lambda: failures)
    assert failures == [broker.fails_with]
    assert not await pipelines.settle(60), "without waiting for it"
