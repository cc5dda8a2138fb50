"""Told before stored, stored before committable: whatever the broker takes its time with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from streamproc.policy import load_policy
from streamproc.worker import partition_pipeline as worker_lanes
from streamproc.worker.codec import unpack
from streamproc.worker.limits import BACKLOG_RECORDS_MAX, SLICE_RECORDS_MAX
from streamproc.worker.partition_pipeline import PartitionPipeline, PartitionPipelines
from streamproc.worker.tables import RunLimits, Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.waiting import until
from tests.worker.records import TOPIC, records_of
from tests.worker.running import honest_run, looping_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ScriptedBroker:
    """Takes letters and states when it is let, and remembers in which order."""

    def __init__(self) -> None:
        self.may_tell = asyncio.Event()
        self.may_store = asyncio.Event()
        self.letters: list = []
        self.stores: list = []
        self.order: list[str] = []
        self.fails_with: Exception | None = None

    async def tell(self, _partition: int, letters: list) -> None:
        await self.may_tell.wait()
        if self.fails_with is not None:
            raise self.fails_with
        self.letters += letters
        self.order.append("told")

    async def store(self, _table: str, _partition: int, changes: list) -> int:
        self.order.append("storing")
        await self.may_store.wait()
        self.stores.append(changes)
        return sum(map(len, self.stores)) - 1


class Store:
    """The runs of partition 0."""

    def __init__(self) -> None:
        self.of_0 = Runs(0, RunLimits())

    def runs(self, _partition: int) -> Runs:
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
async def lanes(broker: ScriptedBroker, failures: list[BaseException]) -> AsyncIterator[PartitionPipelines]:
    processor = TurnProcessor(load_policy().engine(), TOPIC, event_bytes_max=4096, dead_letter_bytes=4096, version="1")
    lanes = PartitionPipelines("runs", Store(), processor, broker, failures.append)
    yield lanes
    lanes.retain(set())


async def test_nothing_is_stored_before_it_is_told_nor_committable_before_it_is_stored(lanes, broker) -> None:
    lane = lanes[0]
    lane.accept(records_of(looping_run("r", 3), first=100))
    settling = asyncio.ensure_future(lane.settle())
    await asyncio.sleep(0)
    assert lanes.committable() == {0: 100}

    broker.may_tell.set()
    await until(lambda: broker.order == ["told", "storing"])
    assert {letter.topic for letter in broker.letters} == {"control", "runs"}
    assert lanes.committable() == {0: 100}

    broker.may_store.set()
    await settling
    assert lanes.committable() == {0: 103}


async def test_a_decision_does_not_wait_for_the_states_before_it(lanes, broker) -> None:
    lane = lanes[0]
    broker.may_tell.set()
    lane.accept(records_of(honest_run("a", 1)))
    settling = asyncio.ensure_future(lane.settle())
    await until(lambda: "storing" in broker.order)

    lane.accept(records_of(looping_run("r", 3), first=1))

    await until(lambda: sum(letter.topic == "control" for letter in broker.letters) == 2)
    assert lane.committable == 0
    broker.may_store.set()
    await settling


async def test_a_state_is_stored_as_it_was_when_its_decisions_were_told(lanes, broker) -> None:
    """What was stepped while an earlier decision was on its way is not in the state that is written for it."""
    lane = lanes[0]
    broker.may_store.set()
    lane.accept(records_of(looping_run("r", 2)))
    settling = asyncio.ensure_future(lane.settle())
    await until(lambda: not lane._runs.dirty)
    lane.accept(records_of(looping_run("r", 3)[2:], first=2))
    broker.may_tell.set()
    await settling
    await lane.settle()
    assert [unpack(raw)[0].turns for changes in broker.stores for _, raw in changes] == [2, 3]


async def test_slices_without_anything_to_tell_are_stored_together(lanes, broker) -> None:
    lane = lanes[0]
    broker.may_tell.set()
    broker.may_store.set()
    lane.accept(records_of(honest_run("r", 1)))
    await lane.settle()
    for number in range(1, 20):
        lane.accept(records_of(honest_run("r", 20)[number : number + 1], first=number))
    await lane.settle()
    assert [len(changes) for changes in broker.stores] == [1, 1]
    assert lane.committable == 20


async def test_a_partition_waits_when_the_broker_does_not_keep_up(lanes, broker) -> None:
    lane: PartitionPipeline = lanes[0]
    pair = honest_run("r", 1)
    for first in range(0, BACKLOG_RECORDS_MAX, SLICE_RECORDS_MAX):
        await asyncio.wait_for(lane.room(), 5)
        lane.accept(records_of(pair * SLICE_RECORDS_MAX, first=first))
    waiting = asyncio.ensure_future(lane.room())
    await asyncio.sleep(0)
    assert not waiting.done()

    broker.may_tell.set()
    broker.may_store.set()
    await waiting
    assert lane.backlog < BACKLOG_RECORDS_MAX


async def test_whoever_waits_for_room_in_a_lane_that_is_closed_is_let_go(lanes, broker, monkeypatch) -> None:
    """It is the one who reads all partitions: were it not let go, none would ever be read again."""
    monkeypatch.setattr(worker_lanes, "BACKLOG_RECORDS_MAX", 1)
    lane = lanes[0]
    assert await lane.room()
    lane.accept(records_of(looping_run("r", 3)))
    waiting = asyncio.ensure_future(lane.room())
    await asyncio.sleep(0)
    lanes.abandon()
    assert not await asyncio.wait_for(waiting, 5), "the records in hand will be read again"


async def test_what_does_not_settle_in_time_is_forgotten_and_will_be_stepped_again(lanes, broker) -> None:
    lanes[0].accept(records_of(looping_run("r", 3)))
    assert not await lanes.settle(0)
    assert lanes.committable() == {}
    assert lanes[0]._runs.wake(b"r") is None
    assert broker.order == []


async def test_a_broker_that_refuses_for_good_is_a_failure_of_the_worker(lanes, broker, failures) -> None:
    broker.fails_with = PermissionError("not allowed to write")
    broker.may_tell.set()
    lanes[0].accept(records_of(looping_run("r", 3)))
    await until(lambda: failures)
    assert failures == [broker.fails_with]
    assert not await lanes.settle(60), "and nobody waits for it"
