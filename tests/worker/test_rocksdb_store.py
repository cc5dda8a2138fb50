"""Runs on disk: the same as in memory, kept together with the offset that they correspond to, thrown away in doubt."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from streamproc.core.run_state import RunState
from streamproc.errors import InvalidSettings
from streamproc.settings import load_settings
from streamproc.worker import rocksdb_runs as shelved_module, rocksdb_store as shelf_module
from streamproc.worker.codec import pack, unpack
from streamproc.worker.deadline_queue import DeadlineQueue
from streamproc.worker.limits import FINISHED_KEEP_MS, IDLE_KEEP_MS, SHELF_AGE_MAX_MS
from streamproc.worker.rocksdb_runs import RocksDBRuns
from streamproc.worker.rocksdb_store import SPOILED, RocksDBFailed, RocksDBStore, RocksDBStores
from streamproc.worker.tables import RunLimits
from tests.worker.running import honest_run
from tests.worker.test_tables import end, step, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_MS = 1_700_000_000_000


@pytest.fixture
def now_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock on the wall, standing still until it is set."""
    now = [START_MS]
    for module in (shelf_module, shelved_module):
        monkeypatch.setattr(module, "wall_ms", lambda: now[0])
    return now


@pytest.fixture
def shelves(tmp_path: Path, now_ms: list[int]) -> Iterator[RocksDBStores]:
    shelves = RocksDBStores(load_settings(datadir=str(tmp_path), instance="w0"))
    yield shelves
    shelves.close()


@pytest.fixture
def shelf(shelves: RocksDBStores) -> Iterator[RocksDBStore]:
    shelf = shelves.open(0)
    yield shelf
    shelf.close()


def reopened(shelves: RocksDBStores, shelf: RocksDBStore) -> RocksDBStore:
    shelf.close()
    return shelves.open(0)


def raw(offset: int = 0, due_ms: int = 0, *, finished: bool = False) -> bytes:
    return pack(RunState(offset=offset, finished=finished), None, due_ms)


def test_it_is_a_mapping_that_forgets_what_was_not_kept(shelves) -> None:
    chance = random.Random(7)
    shelf, now, kept = shelves.open(0), {}, {}
    offset = -1
    for number in range(3_000):
        key = b"run-%d" % chance.randrange(60)
        match chance.choices(["put", "pop", "commit", "reopen"], [60, 20, 15, 2])[0]:
            case "put":
                shelf[key] = now[key] = raw(number)
            case "pop":
                shelf.pop(key, None)
                now.pop(key, None)
            case "commit":
                offset = number
                shelf.commit(offset)
                kept = dict(now)
            case "reopen":
                shelf = reopened(shelves, shelf)
                now = dict(kept)
        assert shelf.get(key) == now.get(key)
        assert (len(shelf), shelf.offset) == (len(now), offset)
        if number % 50 == 0:
            assert sorted(shelf) == sorted(now)
    shelf.close()


def test_alarms_ring_as_those_in_memory_do_and_after_a_restart_too(shelves) -> None:
    chance = random.Random(11)
    shelf, model = shelves.open(0), DeadlineQueue()
    for clock in range(0, 20_000, 10):
        key = b"run-%d" % chance.randrange(30)
        due_ms = chance.choice([0, clock + chance.randrange(1, 2_000)])
        shelf[key] = raw(clock, due_ms)
        model.set(key, due_ms)
        shelf.commit(clock)
        if clock % 700 == 0:
            shelf = reopened(shelves, shelf)
        rung, expected = shelf.take(clock, 100), model.take(clock, 100)
        assert sorted(rung) == sorted(expected)
        assert shelf.take(clock, 100) == [], "each is told once"
        for asked in rung:  # what the engine makes of it is written
            later = chance.choice([0, clock + 500])
            shelf[asked] = raw(clock, later)
            model.set(asked, later)
            shelf.commit(clock)
    shelf.close()


def test_a_run_that_was_asked_and_not_told_is_asked_again(shelves, shelf) -> None:
    shelf[b"a"] = raw(1, due_ms=100)
    shelf.commit(1)
    assert shelf.take(100, 10) == [b"a"]
    shelf.again(b"a", 150)
    assert shelf.take(149, 10) == []
    assert shelf.take(150, 10) == [b"a"]
    again = reopened(shelves, shelf)
    assert again.take(150, 10) == [b"a"], "nothing was written since"
    again.close()


def test_finished_and_idle_runs_leave_in_their_time_also_over_a_restart(shelves, now_ms) -> None:
    shelf = shelves.open(0)
    shelf[b"idle"], shelf[b"busy"], shelf[b"done"] = raw(1), raw(2), raw(3, finished=True)
    shelf.commit(3)
    now_ms[0] += FINISHED_KEEP_MS
    assert shelf.expired(now_ms[0], 0, 10)[0] == [b"done"]
    assert shelf.expired(now_ms[0], 0, 10)[0] == []
    shelf = reopened(shelves, shelf)
    assert shelf.expired(now_ms[0], 0, 10)[0] == [b"done"], "its tombstone was not written"
    shelf.pop(b"done", None)
    shelf[b"busy"] = raw(4)
    shelf.commit(5)

    now_ms[0] = START_MS + IDLE_KEEP_MS
    assert shelf.expired(now_ms[0], 0, 10)[0] == [b"idle"]
    now_ms[0] += FINISHED_KEEP_MS
    assert shelf.expired(now_ms[0], 0, 10)[0] == [b"busy"]
    shelf.close()


def test_of_too_many_runs_the_one_idle_longest_leaves(shelf, now_ms) -> None:
    for number in range(10):
        now_ms[0] += 1
        shelf[b"run-%d" % number] = raw(number)
    now_ms[0] += 1
    shelf[b"run-0"] = raw(10)
    shelf.commit(10)
    assert shelf.expired(now_ms[0], 3, 100) == ([b"run-1", b"run-2", b"run-3"], 3)


@pytest.fixture
def runs_of(shelves: RocksDBStores) -> Iterator[Callable[[], RocksDBRuns]]:
    """The runs of partition 0, as they are found each time."""
    found: list[RocksDBRuns] = []

    def runs() -> RocksDBRuns:
        for before in found:
            before.leave()
        found[:] = [RocksDBRuns(0, RunLimits(), shelves.open(0))]
        return found[0]

    yield runs
    for last in found:
        last.leave()


def test_runs_are_known_again_after_a_restart_as_they_were_written(runs_of) -> None:
    mine = runs_of()
    step(mine, [*honest_run("a", 5), *honest_run("b", 3)])
    mine.stored(mine.take(), 1)
    before = unpack(mine.raw(b"a"))[0]
    step(mine, honest_run("a", 6)[5:], first=100)

    mine = runs_of()

    assert mine.changelog_offset == 1
    assert mine.applied == 7
    assert (len(mine), mine._census.runs) == (2, 2)
    assert sorted(mine.known()) == [b"a", b"b"]
    assert mine.wake(b"a") == before, "without what the broker did not have"


def test_a_shelf_says_only_up_to_where_it_is_complete(runs_of) -> None:
    """Another worker has written to the changelog in between: what it wrote must be read."""
    mine = runs_of()
    for number, last_offset in enumerate((0, 1, 5, 6)):
        step(mine, honest_run("a", 9)[number : number + 1], first=number)
        mine.stored(mine.take(), last_offset)
    assert mine.changelog_offset == 1
    assert runs_of().changelog_offset == 1

    mine = runs_of()
    mine.restore(b"b", pack(RunState(offset=9, turns=3), None), 4)
    mine.restored(8)
    assert runs_of().changelog_offset == 8


def test_recovery_keeps_the_state_that_applied_more_of_the_log(runs_of) -> None:
    mine = runs_of()
    mine.restore(b"a", pack(RunState(offset=9, turns=3), None), 4)
    mine.restore(b"a", pack(RunState(offset=5, turns=2), None), 5)
    mine.restore(b"gone", pack(RunState(offset=1), None), 6)
    mine.restore(b"gone", None, 7)
    mine.restored(7)
    mine = runs_of()
    assert mine.changelog_offset == 7
    assert (len(mine), mine.wake(b"a").turns) == (1, 3)


def test_a_run_that_is_touched_while_its_time_is_up_stays(runs_of, now_ms) -> None:
    mine = runs_of()
    step(mine, [*honest_run("a", 1), *honest_run("b", 1), *honest_run("done", 1), end("done")])
    write(mine)
    now_ms[0] += IDLE_KEEP_MS
    step(mine, honest_run("a", 2)[1:], first=50)
    changes = mine.take()
    mine.stored(changes, None)
    assert sorted(key for key, raw in changes if raw is None) == [b"b", b"done"]
    assert unpack(mine.raw(b"a"))[0].turns == 2
    assert b"b" not in mine
    assert mine.forgotten == 2


@pytest.mark.parametrize("fault", ["spoiled", "garbage", "flipped", "old", "from the future", "form"])
def test_a_shelf_that_cannot_be_trusted_is_thrown_away(shelves, tmp_path, now_ms, monkeypatch, fault) -> None:
    shelf = shelves.open(0)
    shelf[b"a"] = raw()
    shelf.commit(5)
    shelf.close()
    [path] = tmp_path.glob("*/w0/0")
    match fault:
        case "spoiled":
            (path / SPOILED).touch()
        case "garbage":
            (path / "CURRENT").write_text("garbage")
        case "flipped":
            for table in path.glob("*.sst"):
                table.write_bytes(bytes(byte ^ 0xFF for byte in table.read_bytes()))
            assert list(path.glob("*.sst"))
        case "old":
            now_ms[0] += SHELF_AGE_MAX_MS
        case "from the future":
            now_ms[0] -= 1_000
        case "form":
            monkeypatch.setattr(shelf_module, "FORM", 2)
    shelf = shelves.open(0)
    assert (shelf.offset, len(shelf), shelf.get(b"a")) == (-1, 0, None)
    shelf[b"b"] = raw()
    shelf.commit(0)
    shelf.close()


def test_what_turns_out_to_be_unreadable_is_not_used_again(shelves, tmp_path) -> None:
    shelf = shelves.open(0)
    for number in range(2_000):
        shelf[b"run-%d" % number] = raw() + random.Random(number).randbytes(1_000)
    shelf.commit(5)
    shelf.close()
    shelf = shelves.open(0)
    [path] = tmp_path.glob("*/w0/0")
    for table in path.glob("*.sst"):
        content = bytearray(table.read_bytes())
        for place in range(0, len(content) - 200_000, 997):
            content[place] ^= 0xFF
        table.write_bytes(content)
    with pytest.raises(RocksDBFailed, match="Corruption"):
        [shelf.get(b"run-%d" % number) for number in range(2_000)]
    assert reopened(shelves, shelf).offset == -1


def test_two_workers_do_not_share_a_place(shelves, tmp_path) -> None:
    with pytest.raises(InvalidSettings, match="give each worker a STREAMPROC_INSTANCE of its own"):
        RocksDBStores(load_settings(datadir=str(tmp_path), instance="w0"))
    RocksDBStores(load_settings(datadir=str(tmp_path), instance="w1")).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSettings, match=r"STREAMPROC_DATADIR: .*file"):
        RocksDBStores(load_settings(datadir=str(tmp_path / "file")))


def test_what_is_of_another_log_goes_for_good(shelves) -> None:
    shelf = shelves.open(0)
    shelf[b"a"] = raw()
    shelf.commit(5)
    shelf.discard()
    assert reopened(shelves, shelf).offset == -1
