"""What the topic `runs` forgets: old statuses of runs that no table holds, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import TopicPartition

from streamproc.errors import InvalidSettings
from streamproc.kafka.topics import DAY_MS, HOUR_MS, specs
from streamproc.policy import load_policy
from streamproc.settings import load_settings
from streamproc.worker import limits, status_retention as module
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.publishing import OutgoingRecord
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.status_retention import StatusReading, StatusRetention, cutoffs
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.worker.records import NOON_MS, TOPIC, Record, records_of
from tests.worker.running import honest_run, looping_run

HALT = b'{"run_id":"r","status":"halted","severity":"halt"}'
FINISHED = b'{"run_id":"r","status":"finished","severity":"info"}'
RUNNING = b'{"run_id":"r","status":"running","severity":"info"}'
FINISHED_BUT_HALTED = b'{"run_id":"r","status":"finished","severity":"halt","halt":{"code":"LOOP001"}}'
OLD = cutoffs(load_settings(), NOON_MS)


def reading(*records: tuple[bytes, bytes | None, int], held: Iterable[bytes] = ()) -> StatusReading:
    """Read (key, value, age in ms), oldest first; the offset is the place."""
    found = StatusReading(OLD, set(held).__contains__)
    found.read(Record(place, key, value, NOON_MS - age_ms) for place, (key, value, age_ms) in enumerate(records))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("value", "age_ms", "forgotten"), [
    (FINISHED, DAY_MS, True), (FINISHED, DAY_MS - 1, False), (HALT, 30 * DAY_MS, True), (HALT, 30 * DAY_MS - 1, False),
    (RUNNING, 30 * DAY_MS - 1, False), (RUNNING, 30 * DAY_MS, True), (FINISHED_BUT_HALTED, 30 * DAY_MS - 1, False),
    (b"no status", 30 * DAY_MS - 1, False), (b"[" * 100_000, 30 * DAY_MS - 1, False),
])  # fmt: skip
def test_a_status_is_old_after_its_retention(value: bytes, age_ms: int, forgotten: bool) -> None:
    assert list(reading((b"r", value, age_ms)).due) == [b"r"] * forgotten


@pytest.mark.parametrize("later", [(b"r", HALT, DAY_MS), (b"r", FINISHED, 0), (b"r", None, 0)])
def test_the_latest_record_of_a_run_decides(later: tuple[bytes, bytes | None, int]) -> None:
    assert not reading((b"r", FINISHED, 2 * DAY_MS), later).due


def test_zero_keeps_statuses_for_ever() -> None:
    kept = cutoffs(load_settings(status_finished_hours=0, status_days=0), NOON_MS)
    found = StatusReading(kept, lambda _key: False)
    found.read([Record(0, b"a", FINISHED, 0), Record(1, b"b", HALT, 0)])  # type: ignore[list-item]
    assert not found.due


def test_memory_is_bounded_and_the_next_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUSES_DUE_MAX", 2)
    names = [b"a", b"b", b"c", b"d"]
    found = reading(*((name, FINISHED, 2 * DAY_MS) for name in names), (b"a", RUNNING, 0))
    assert (list(found.due), found.go_on_at) == ([b"b"], 2)


def test_a_tombstone_of_a_run_that_the_table_holds_is_a_mistake() -> None:
    assert list(reading((b"r", None, 0), (b"s", None, 0), held=[b"r"]).missing) == [b"r"]
    assert not reading((b"r", None, 0), (b"r", RUNNING, 0), held=[b"r"]).missing


@pytest.mark.parametrize(
    ("hours", "kept_ms"), [(24, DAY_MS), (100, DAY_MS), (0, DAY_MS), (0.5, 2 * HOUR_MS), (5, 5 * HOUR_MS)]
)
def test_tombstones_are_kept_no_longer_than_what_they_replace(hours: float, kept_ms: int) -> None:
    [runs] = [spec for spec in specs(load_settings(status_finished_hours=hours)) if spec.name == "streamproc.runs"]
    assert runs.config["delete.retention.ms"] == str(kept_ms)


@pytest.mark.parametrize("given", [-1, float("nan"), 1e9])
def test_a_retention_that_is_none_is_refused(given: float) -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_STATUS_DAYS"):
        load_settings(status_days=given)


# One sweep, with a log and a broker in memory.


class OneLog:
    """A consumer of partition 0 of `runs`."""

    def __init__(self, records: list[Record]) -> None:
        self._records, self._at = records, 0

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, len(self._records))

    def assign(self, _places: list[TopicPartition]) -> None: ...

    def seek(self, _place: TopicPartition, offset: int) -> None:
        self._at = offset

    async def getmany(
        self, place: TopicPartition, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[Record]]:
        batch = self._records[self._at : self._at + max_records]
        self._at += len(batch)
        return {place: batch}

    async def position(self, _place: TopicPartition) -> int:
        return self._at


class Broker:
    """Acknowledges everything; `during` happens while it does."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.during: Any = lambda: None

    async def publish(self, _partition: int, outgoing: list[Any]) -> None:
        self.sent += outgoing
        self.during()
        await asyncio.sleep(0)

    async def store(self, _table: str, _partition: int, changes: list[Any]) -> int:
        return len(changes) - 1

    def log_now_ms(self) -> int:
        return NOON_MS

    @property
    def on_runs(self) -> list[tuple[bytes, bool]]:
        """Each record for the topic: its key, and whether it is a tombstone."""
        return [(record.key, record.value is None) for record in self.sent if record.topic == "runs"]


class Partition0:
    """A worker that has partition 0, and the parts that a sweep needs."""

    consumer = rebalancing = in_recovery = None

    def __init__(self, **options: Any) -> None:
        self.runs, self.broker = Runs(0, RunLimits()), Broker()
        self.processor = TurnProcessor(
            load_policy().engine(), TOPIC, event_bytes_max=65_536, dead_letter_bytes=4096, version="1"
        )
        self.partitions = {0: self.runs}
        self.flow_active = True
        self.consumer = self  # type: ignore[assignment]
        self.failures: list[BaseException] = []
        self.pipelines = PartitionPipelines("runs", self, self.processor, self.broker, self.failures.append)  # type: ignore[arg-type]
        self.settings = load_settings(**options)
        self.retention = StatusRetention(
            self,
            self.settings,
            self,
            self.pipelines,
            self.processor,
            self.broker,  # type: ignore[arg-type]
        )
        self.retention.have({0})

    def partition_of(self, _partition: int) -> Runs:
        return self.runs

    def leave(self, partition: int) -> None:
        self.partitions.pop(partition)

    def step(self, pairs: list[tuple[bytes, bytes]], at_ms: int = NOON_MS) -> None:
        self.pipelines.accept(0, records_of(pairs, self.pipelines[0].position + 1, at_ms))

    async def sweep(self, *records: tuple[bytes, bytes | None, int]) -> None:
        """Sweep a log of (key, value, age in ms)."""
        log = [Record(place, key, value, NOON_MS - age_ms) for place, (key, value, age_ms) in enumerate(records)]
        self.retention._checked_s = module.time.monotonic()
        await self.retention._sweep_partition(OneLog(log), self.retention._mine, self.runs)  # type: ignore[arg-type]
        await self.pipelines.settle(10)
        assert not self.failures


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUS_SWEEP_PAUSE_S", 0)


def stuck(run_id: str, turns: int = 6) -> list[tuple[bytes, bytes]]:
    return looping_run(run_id, turns)


async def test_only_runs_that_the_table_does_not_hold_are_forgotten() -> None:
    mine = Partition0()
    mine.step(honest_run("held", 2))
    await mine.sweep((b"held", FINISHED, 2 * DAY_MS), (b"gone", FINISHED, 2 * DAY_MS))
    assert mine.broker.on_runs == [(b"held", False), (b"gone", True)]
    assert (mine.retention.forgotten, mine.retention.restored) == (1, 0)


async def test_a_status_of_a_run_that_begins_again_follows_its_tombstone() -> None:
    mine = Partition0()
    began: list[bool] = []

    def begin() -> None:
        if not began:
            began.append(True)
            mine.step(honest_run("gone", 2))

    mine.broker.during = begin
    await mine.sweep((b"gone", FINISHED, 2 * DAY_MS))
    assert mine.broker.on_runs == [(b"gone", True), (b"gone", False)]


async def test_records_without_an_event_keep_their_place_among_the_others() -> None:
    mine = Partition0()
    pipeline = mine.pipelines[0]
    besides = pipeline.publish_besides([OutgoingRecord("runs", b"gone", None)])
    besides.send(None)  # it has given its records, and waits
    mine.step(honest_run("gone", 2))
    await mine.pipelines.settle(10)
    besides.close()
    assert mine.broker.on_runs == [(b"gone", True), (b"gone", False)]
    assert await pipeline.publish_besides([])


async def test_a_worker_that_loses_the_partition_writes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUS_SWEEP_WRITES", 1)
    old = [(b"a", FINISHED, 2 * DAY_MS), (b"b", FINISHED, 2 * DAY_MS)]
    mine = Partition0()
    mine.broker.during = mine.retention.leave
    await mine.sweep(*old)
    assert mine.broker.on_runs == [(b"a", True)]

    for change in ({"rebalancing": True}, {"in_recovery": True}, {"flow_active": False}, {"partitions": {}}):
        mine = Partition0()
        vars(mine).update(change)
        await mine.sweep(*old)
        assert mine.broker.on_runs == [], change


async def test_a_process_that_was_frozen_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Partition0()
    now_s = iter(range(0, 1_000, 6))  # the session takes 10 s
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now_s))
    await mine.sweep((b"gone", FINISHED, 2 * DAY_MS))
    assert mine.broker.on_runs == []


async def test_an_idle_halt_leaves_the_table_before_its_status() -> None:
    mine = Partition0()
    mine.step(stuck("stuck"), NOON_MS - 31 * DAY_MS)
    await mine.pipelines.settle(10)
    mine.broker.sent.clear()

    await mine.sweep((b"stuck", HALT, 31 * DAY_MS))
    assert b"stuck" not in mine.runs
    assert mine.broker.on_runs == []
    await mine.sweep((b"stuck", HALT, 31 * DAY_MS))
    assert mine.broker.on_runs == [(b"stuck", True)]


@pytest.mark.parametrize(("pairs", "age_ms"), [
    (stuck("r"), 29 * DAY_MS), (honest_run("r"), 31 * DAY_MS),
], ids=["halted, with an event of late", "not halted"])  # fmt: skip
async def test_the_table_keeps_every_other_run(pairs: list[tuple[bytes, bytes]], age_ms: int) -> None:
    mine = Partition0()
    mine.step(pairs, NOON_MS - age_ms)
    await mine.pipelines.settle(10)
    mine.broker.sent.clear()
    for _ in range(2):
        await mine.sweep((b"r", HALT, 31 * DAY_MS))
    assert b"r" in mine.runs
    assert mine.broker.on_runs == []


def test_a_run_that_changes_before_the_write_stays_in_the_table() -> None:
    mine = Partition0()
    step = mine.processor.accept
    step(mine.runs, records_of(stuck("r")))
    mine.runs.stored(mine.runs.take(), 0)
    mine.runs.overdue |= {b"r", b"unknown"}
    step(mine.runs, records_of(stuck("r", 9)[6:], 6))
    changes = mine.runs.take()
    assert [raw is not None for key, raw in changes if key == b"r"] == [True]
    mine.runs.stored(changes, 1)
    assert b"r" in mine.runs


async def test_a_status_that_another_worker_removed_is_published_again() -> None:
    mine = Partition0()
    mine.step(stuck("stuck"))
    await mine.pipelines.settle(10)
    mine.broker.sent.clear()

    await mine.sweep((b"stuck", HALT, HOUR_MS), (b"stuck", None, 0), (b"gone", None, 0))
    assert mine.broker.on_runs == [(b"stuck", False)]
    assert b'"status":"halted"' in mine.broker.sent[0].value
    assert b'"LOOP001"' in mine.broker.sent[0].value
    assert mine.retention.restored == 1
