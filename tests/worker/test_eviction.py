"""A flood of made-up run ids makes no worker forget a halt, and a publisher's new runs can be limited."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from streamproc.client import HaltListener, TurnPublisher
from streamproc.kafka import topics as kafka_topics
from streamproc.model import wire
from streamproc.policy import load_policy
from streamproc.settings import load_settings
from streamproc.worker import eviction, new_runs, tables
from streamproc.worker.codec import decode_run
from streamproc.worker.eviction import FINISHED, HALTED, NEW, OPEN, RANKS, STUB, rank_of, surplus
from streamproc.worker.limits import IDLE_KEEP_MS, PUBLISHERS_MAX
from streamproc.worker.new_runs import MINUTE_MS
from streamproc.worker.partition_store import Change
from streamproc.worker.publishing import OutgoingRecord
from streamproc.worker.rocksdb_runs import RocksDBRuns
from streamproc.worker.rocksdb_store import RocksDBStores
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.feeding import Feed
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.records import NOON_MS, TOPIC, Record, records_of
from tests.worker.running import Topics, WorkerProcess, event_record, honest_run, looping_run
from tests.worker.test_tables import end

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


RUNS_MAX: Final = 40
ENGINE = load_policy().engine()


class Partition:
    """The runs of one partition, the log that they have read, and the changelog that they have written."""

    def __init__(self, mine: Runs, *, new_runs_max: int = 0) -> None:
        self.mine = mine
        self.changelog: list[Change] = []
        self.offset = 0
        self._processor = TurnProcessor(
            ENGINE, TOPIC, event_bytes_max=4096, dead_letter_bytes=4096, version="1", new_runs_max=new_runs_max
        )

    def step(self, pairs: Sequence[tuple[bytes, bytes]], at_ms: int = NOON_MS) -> list[OutgoingRecord]:
        """Step records that arrive next, and do not write what has changed."""
        records = records_of(pairs, self.offset, at_ms)
        self.offset += len(records)
        return self._processor.accept(self.mine, records)

    def write(self, most: int | None = None) -> None:
        """Write what has changed, as the pipeline does."""
        changes = self.mine.take(most)
        self.mine.stored(changes, None)
        self.changelog += changes

    def feed(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[OutgoingRecord]:
        outgoing = self.step(pairs)
        self.write()
        return outgoing

    def flood(self, runs: int, turns: int = 1, name: str = "fresh") -> None:
        """Begin runs, ten in each write."""
        for first in range(0, runs, 10):
            fresh = [f"{name}-{number}" for number in range(first, first + 10)]
            self.feed([pair for run_id in fresh for pair in honest_run(run_id, turns)])

    def state(self, run_id: str) -> Any:
        raw = self.mine.raw(run_id.encode())
        assert raw is not None
        return decode_run(raw)[0]


@pytest.fixture
def run_limits(monkeypatch: pytest.MonkeyPatch) -> RunLimits:
    monkeypatch.setattr("streamproc.worker.run_limits.RUNS_MAX", RUNS_MAX)
    monkeypatch.setattr(tables, "SWEEP_RUNS_MAX", 5)
    return RunLimits()


@pytest.fixture(params=["memory", "rocksdb"])
def new_runs_of(request: pytest.FixtureRequest, run_limits: RunLimits, tmp_path: Path) -> Iterator[Callable[[], Runs]]:
    """Makes empty runs of one partition after another, in memory or on disk."""
    made: list[Runs] = []
    stores = RocksDBStores(load_settings(datadir=str(tmp_path))) if request.param == "rocksdb" else None

    def new() -> Runs:
        number = len(made)
        made.append(
            Runs(number, run_limits) if stores is None else RocksDBRuns(number, run_limits, stores.open(number))
        )
        return made[-1]

    yield new
    for runs in made:
        runs.leave()
    if stores is not None:
        stores.close()


@pytest.fixture
def partition(new_runs_of: Callable[[], Runs]) -> Partition:
    return Partition(new_runs_of())


def statuses(outgoing: Sequence[OutgoingRecord]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(record.value) for record in outgoing if record.topic == "runs"]


def resume(run_id: str, event_id: str = "resume-1", at_ms: int = NOON_MS) -> tuple[bytes, bytes]:
    return event_record(wire.OperatorResume(w=1, run_id=run_id, event_id=event_id, at=at_ms, by="ada"))


# The order.


def test_a_flood_of_new_runs_evicts_its_own_kind_before_halted_and_long_lived_runs(partition: Partition) -> None:
    partition.feed([*looping_run("stuck"), *honest_run("worker", 9)])

    partition.flood(20 * RUNS_MAX)

    assert partition.state("stuck").halted >= 0
    assert partition.state("worker").turns == 9
    assert len(partition.mine) <= RUNS_MAX + 10
    assert partition.mine._limits.evicted == partition.mine.removed > 18 * RUNS_MAX


def test_a_flood_that_pays_for_more_turns_evicts_no_halted_run(partition: Partition) -> None:
    partition.feed(looping_run("stuck"))
    partition.flood(5 * RUNS_MAX, turns=6)
    assert partition.state("stuck").halted >= 0
    assert len(partition.mine) <= RUNS_MAX + 10


def test_new_runs_are_evicted_only_if_they_are_many(partition: Partition) -> None:
    """Or a worker full of idle long runs would watch no new run."""
    partition.flood(2 * RUNS_MAX, turns=6, name="long")
    partition.feed(honest_run("beginner", 1))
    partition.flood(RUNS_MAX, turns=6, name="longer")
    assert partition.state("beginner").turns == 1


def test_a_flood_of_one_partition_evicts_no_run_of_another(new_runs_of: Callable[[], Runs]) -> None:
    """Its sender chooses the partition with the run id."""
    quiet, flooded = Partition(new_runs_of()), Partition(new_runs_of())
    quiet.mine._limits.share(2)
    quiet.feed([*looping_run("stuck"), *honest_run("young", 1), *honest_run("old", 9)])

    flooded.flood(5 * RUNS_MAX, turns=6)
    quiet.feed([*honest_run("old", 10)[9:], *honest_run("next", 1)])

    assert sorted(quiet.mine.known()) == [b"next", b"old", b"stuck", b"young"]
    assert len(flooded.mine) <= RUNS_MAX // 2 + 10


@pytest.mark.parametrize(("counts", "expected"), [
    ((10, 10, 70, 10, 0), (0, 0, 0, 0, 0)), ((10, 10, 80, 10, 0), (10, 0, 0, 0, 0)),
    ((10, 80, 10, 10, 0), (10, 0, 0, 0, 0)), ((10, 85, 15, 10, 0), (10, 10, 0, 0, 0)),
    ((0, 40, 50, 40, 0), (0, 15, 0, 15, 0)), ((0, 20, 90, 20, 0), (0, 0, 30, 0, 0)),
    ((0, 0, 120, 40, 500), (0, 0, 45, 15, 100)), ((0, 0, 0, 400, 0), (0, 0, 0, 300, 0)),
])  # fmt: skip
def test_the_surplus_is_taken_from_the_ranks_in_order(counts: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert tuple(RANKS) == (FINISHED, NEW, OPEN, HALTED, STUB)
    assert surplus(counts, 100) == list(expected)


def test_a_run_whose_changes_are_not_written_yet_is_not_evicted(partition: Partition) -> None:
    """A write takes the states that changed first; the run may be one of the next."""
    partition.feed(honest_run("old", 1))
    partition.flood(RUNS_MAX - 10)
    partition.step([*begun(50, "late"), *honest_run("old", 2)[1:]])
    partition.write(most=20)
    partition.write(most=20)
    assert partition.mine.removed > 0
    partition.write()
    assert partition.state("old").turns == 2


# Stubs.


def many_halted(partition: Partition, runs: int = 2 * RUNS_MAX) -> None:
    """More halted runs than there is room for: `stuck`, then others."""
    partition.feed(looping_run("stuck"))
    for number in range(runs):
        partition.feed(looping_run(f"halted-{number}"))


def test_past_their_part_halted_runs_become_stubs_which_are_halted_all_the_same(partition: Partition) -> None:
    many_halted(partition)
    state = partition.state("stuck")
    assert (state.halted, state.escalation.halt_code.get(), state.turns, len(state.novelty.seen)) == (
        2,
        "LOOP001",
        6,
        0,
    )
    assert len(partition.mine.raw(b"stuck") or b"") < 256
    assert partition.mine.removed == partition.mine._limits.evicted == 0

    outgoing = partition.feed([*honest_run("stuck", 9)[6:], event_record(wire.RunStarted(w=1, run_id="stuck"))])

    state = partition.state("stuck")
    assert (state.halted, state.turns, len(state.novelty.seen)) == (2, 9, 0), "it is still a stub"
    assert statuses(outgoing) == [], "the last status says why"


def test_stubs_stay_halted_after_a_restart(partition: Partition, new_runs_of: Callable[[], Runs]) -> None:
    many_halted(partition)
    again = Partition(new_runs_of())
    last = {key: (place, raw) for place, (key, raw) in enumerate(partition.changelog)}  # after compaction
    for key, (place, raw) in last.items():
        again.mine.restore(key, raw, place)
    again.mine.restored(len(partition.changelog))
    again.offset = partition.offset

    assert statuses(again.feed(honest_run("stuck", 9)[6:])) == []
    assert again.state("stuck").halted >= 0


def test_the_status_of_a_stub_is_published_again_where_its_last_record_is_read_again(partition: Partition) -> None:
    """Another worker, which did not know its state yet, may have published `running` meanwhile."""
    many_halted(partition)
    partition.offset = 5
    assert [status["status"] for status in statuses(partition.step(looping_run("stuck")[5:]))] == ["halted"]


def test_runs_on_disk_keep_their_ranks_when_the_store_is_opened_again(run_limits: RunLimits, tmp_path: Path) -> None:
    stores = RocksDBStores(load_settings(datadir=str(tmp_path)))
    partition = Partition(RocksDBRuns(0, run_limits, stores.open(0)))
    many_halted(partition)
    partition.feed([*honest_run("worker", 9), *honest_run("done", 1), end("done")])
    counts = partition.mine._rocksdb.counts
    partition.mine.leave()

    partition.mine = again = RocksDBRuns(0, run_limits, stores.open(0))
    assert again._rocksdb.counts == counts
    assert len(again) == sum(counts) == run_limits.runs
    partition.flood(2 * RUNS_MAX)
    assert partition.state("stuck").halted >= 0
    assert partition.state("worker").turns == 9
    again.leave()
    stores.close()


def test_only_an_operator_lifts_the_halt_of_a_stub_and_a_recorded_resume_does_not(partition: Partition) -> None:
    partition.feed([*looping_run("stuck"), resume("stuck"), *looping_run("stuck", 12)[6:]])
    assert partition.state("stuck").halted >= 0
    many_halted(partition)
    assert len(partition.state("stuck").novelty.seen) == 0

    recorded = partition.feed([resume("stuck")])
    assert [record.topic for record in recorded] == []
    assert partition.state("stuck").halted >= 0

    resumed = partition.feed([resume("stuck", "resume-2", NOON_MS + 9_000)])
    assert [status["status"] for status in statuses(resumed)] == ["running"]
    assert partition.state("stuck").halted < 0
    halted_again = statuses(partition.feed(looping_run("stuck", 20)[12:]))
    assert [status["status"] for status in halted_again] == ["halted"]
    assert "halt" in halted_again[0]


def test_a_stub_keeps_the_spend_of_its_run(partition: Partition) -> None:
    usage = wire.Usage(input_tokens=1_000, cost_usd_micro=5)
    spent = [wire.Turn(w=1, run_id="stuck", node="n", event_id=f"spend/{n}", usage=usage) for n in range(3)]
    partition.feed([event_record(turn) for turn in spent])
    many_halted(partition)
    state = partition.state("stuck")
    assert (len(state.novelty.seen), state.ledger.total_tokens, state.ledger.cost_usd_micro) == (0, 3_000, 15)


def test_a_halted_run_that_was_idle_for_a_week_becomes_a_stub(run_limits: RunLimits) -> None:
    now_ms = [0]
    run_limits.now_ms = lambda: now_ms[0]
    partition = Partition(Runs(0, run_limits))
    partition.feed([*looping_run("stuck"), end("stuck"), *honest_run("idle", 9)])
    now_ms[0] += IDLE_KEEP_MS + 1
    partition.feed(honest_run("other", 1))
    now_ms[0] += IDLE_KEEP_MS + 1
    partition.feed(honest_run("another", 1))

    assert sorted(partition.mine.known()) == [b"another", b"stuck"]
    assert statuses(partition.feed(honest_run("stuck", 9)[6:])) == []
    assert partition.state("stuck").halted >= 0


def test_past_the_limit_of_stubs_the_oldest_halt_is_forgotten_and_counted(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "STUBS_A_RUN", 1)
    many_halted(partition, 2 * RUNS_MAX + 8)
    run_limits = partition.mine._limits
    assert b"stuck" not in partition.mine
    assert run_limits.forgotten_halts == run_limits.evicted == partition.mine.removed > 0
    assert len(partition.mine) <= 2 * RUNS_MAX + 5


def test_a_stub_is_small_and_not_confused_with_another_rank() -> None:
    feed = Feed()
    state = feed.state
    state.turns, state.halted, state.owner = 9, 3, 1 << 62
    state.escalation.halt_code.set("LOOP001")
    for tag in range(90):
        state.novelty.seen.add(tag)
    assert (rank_of(state, b"{}"), rank_of(state, None)) == (HALTED, STUB)
    feed.evict()
    assert len(feed.stored) < 256
    assert rank_of(feed.state, None) == STUB


# A publisher's new runs.


def by(publisher: str | None, pairs: Sequence[tuple[bytes, bytes]], first: int, at_ms: int = NOON_MS) -> list[Record]:
    headers = () if publisher is None else ((wire.PUBLISHER_HEADER, publisher.encode()),)
    return [Record(first + place, *pair, at_ms, headers=headers) for place, pair in enumerate(pairs)]


def begun(runs: int, name: str) -> list[tuple[bytes, bytes]]:
    return [pair for number in range(runs) for pair in honest_run(f"{name}-{number}", 1)]


def limited(most: int) -> TurnProcessor:
    return TurnProcessor(ENGINE, TOPIC, event_bytes_max=4096, dead_letter_bytes=4096, version="1", new_runs_max=most)


def test_a_publisher_begins_no_more_runs_a_minute_than_it_may_and_others_begin_theirs() -> None:
    mine, processor = Runs(0, RunLimits()), limited(3)
    outgoing = processor.accept(mine, by("eager", begun(5, "eager"), 0))
    outgoing += processor.accept(mine, by("calm", begun(3, "calm"), 10))

    dead = [dict(record.headers) for record in outgoing if record.topic == "dead-letter"]
    assert [int(headers["source.offset"]) for headers in dead] == [3, 4]
    assert dead[0]["reason"].startswith(b"publisher: more than 3 new runs a minute of 'eager'")
    assert b"STREAMPROC_NEW_RUNS_MAX" in dead[0]["remedy"]
    assert len(mine.active) == 6
    assert not [record for record in outgoing if record.topic == "runs" and record.key in (b"eager-3", b"eager-4")]

    more = processor.accept(mine, by("eager", looping_run("eager-0"), 20))
    assert [record.topic for record in more].count("control") == 2, "its runs are watched"
    assert not processor.accept(mine, by("eager", begun(1, "later"), 30, NOON_MS + MINUTE_MS))[1:]
    assert b"later-0" in mine.active


def test_publishers_without_a_name_and_those_past_the_limit_of_names_share_one_count() -> None:
    mine, processor = Runs(0, RunLimits()), limited(2)
    for number in range(3 * PUBLISHERS_MAX):
        processor.accept(mine, by(f"made-up-{number}", begun(4, f"of-{number}"), 10 * number))
    assert len(mine.active) == 2 * PUBLISHERS_MAX + 2
    processor.accept(mine, by(None, begun(4, "nameless"), 10_000))
    assert len(mine.active) == 2 * PUBLISHERS_MAX + 2
    assert len(mine.new_runs._counts) == PUBLISHERS_MAX + 1


def test_a_command_reaches_a_run_that_its_publisher_may_not_begin() -> None:
    mine, processor = Runs(0, RunLimits()), limited(1)
    processor.accept(mine, by("eager", begun(3, "eager"), 0))
    stop = event_record(wire.OperatorStop(w=1, run_id="other", event_id="stop", by="ada"))
    outgoing = processor.accept(mine, by("eager", [stop], 10))
    assert [status["status"] for status in statuses(outgoing)] == ["halted"]


def test_no_run_that_was_accepted_is_refused_when_its_records_are_processed_again() -> None:
    """A crash at any point: what is stored is any part of the changes, and the log goes on from the commit."""
    most = 0
    for seed in range(60):
        chance = random.Random(seed)
        log: list[Record] = []
        for offset in range(120):
            publisher, run_id = chance.choice(["a", "b", "c"]), f"run-{chance.randrange(50)}"
            log += by(publisher, [honest_run(run_id, 1)[0]], offset, NOON_MS + offset * MINUTE_MS // 25)
        mine, processor, committed = Runs(0, RunLimits()), limited(4), chance.randrange(60)
        crash = chance.randrange(committed, len(log))
        processor.accept(mine, log[:committed])
        changes = mine.take()
        refused = refused_by(processor, mine, log[committed:crash])
        changes += mine.take(chance.randrange(mine.changed + 1))

        again = Runs(0, RunLimits())
        for place, (key, raw) in enumerate(changes):
            again.restore(key, raw, place)
        refused_again = refused_by(limited(4), again, log[committed:])

        assert {offset for offset in refused_again if offset < crash} <= refused
        most = max(most, len(refused_again))
    assert most > 5


def refused_by(processor: TurnProcessor, mine: Runs, records: list[Record]) -> set[int]:
    outgoing = processor.accept(mine, records)
    return {int(dict(record.headers)["source.offset"]) for record in outgoing if record.topic == "dead-letter"}


# Real Kafka.

SMALL: Final = f"""
from streamproc.worker import composition, run_limits, tables
run_limits.RUNS_MAX = {RUNS_MAX}
tables.SWEEP_RUNS_MAX = 5
composition.REPORT_INTERVAL_S = 0.1
"""
ONE_MINUTE: Final = "from streamproc.worker import new_runs\nnew_runs.MINUTE_MS = 1 << 50"


async def last_status(topics: Topics, run_id: str) -> dict[str, Any]:
    found = [record for record in await topics.read("runs") if record.key == run_id.encode()]
    return dict(msgspec.json.decode(found[-1].value))


@pytest.mark.long
async def test_a_halted_run_stays_halted_through_a_flood_and_a_restart_until_an_operator_resumes_it(
    brokers: str, topic_prefix: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    settings = settings_for(brokers, topic_prefix, partitions=1)
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    worker = start_worker(settings, before=SMALL)
    await worker.ready()
    await topics.send(looping_run("stuck"))
    await topics.done()
    others = [looping_run(f"halted-{number}", 3) for number in range(RUNS_MAX)]
    await topics.send([pair for run in others for pair in run])
    for wave in range(2):
        await topics.send(begun(2 * RUNS_MAX, f"fresh-{wave}"))
        await topics.done()
    await until(lambda: worker.said(f"run limit of {RUNS_MAX} reached; evicted "), 30, "the flood to be logged")

    for turn in (6, 7):
        await topics.send([honest_run("stuck", 9)[turn]])
        await topics.done()
        status = await last_status(topics, "stuck")
        assert (status["status"], status["halt"]["code"]) == ("halted", "LOOP001")
        if turn == 6:
            assert worker.end() == 0
            worker = start_worker(settings, before=SMALL)
            await worker.ready()

    async with HaltListener(settings=settings) as halts, TurnPublisher(settings=settings) as turns:
        halt = halts.halted("stuck")
        assert halt.code == "LOOP001"
        await turns.operator_resume(run_id="stuck", by="ada")
        await until(lambda: not halts.halted("stuck"), 30, "the operator's resume")
    await topics.done()
    assert (await last_status(topics, "stuck"))["status"] == "running"


async def test_the_surplus_of_a_publishers_new_runs_is_dead_lettered_and_those_of_others_are_watched(
    brokers: str, topic_prefix: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    assert new_runs.MINUTE_MS == 60_000
    settings = settings_for(brokers, topic_prefix, partitions=1, new_runs_max=3)
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    worker = start_worker(settings, before=ONE_MINUTE)
    await worker.ready()
    for publisher, runs in (("eager", 6), ("calm", 2)):
        async with TurnPublisher(settings=settings.model_copy(update={"client_id": publisher})) as turns:
            for number in range(runs):
                await turns.turn(run_id=f"{publisher}-{number}", node="coder", output=f"Step {number}.")
    await topics.done()

    dead = await topics.read("dead-letter")
    assert [record.key for record in dead] == [b"eager-3", b"eager-4", b"eager-5"]
    assert all(b"more than 3 new runs a minute of 'eager'" in dict(record.headers)["reason"] for record in dead)
    known = {record.key for record in await topics.read("runs")}
    assert known == {b"eager-0", b"eager-1", b"eager-2", b"calm-0", b"calm-1"}
