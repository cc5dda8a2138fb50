"""Runs on disk: the same as in memory, stored together with their changelog offset, deleted if in doubt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings
from streamproc.settings import load_settings
from streamproc.worker import rocksdb_runs as shelved_module, rocksdb_store as store_module
from streamproc.worker.codec import decode_run, encode_run
from streamproc.worker.deadline_queue import DeadlineQueue
from streamproc.worker.eviction import NEW, RANKS, Leaving, surplus
from streamproc.worker.limits import FINISHED_KEEP_MS, IDLE_KEEP_MS, ROCKSDB_AGE_MAX_MS
from streamproc.worker.rocksdb_runs import RocksDBRuns
from streamproc.worker.rocksdb_store import UNREADABLE, RocksDBFailed, RocksDBStore, RocksDBStores
from streamproc.worker.run_limits import RunLimits
from tests.feeding import run_with
from tests.worker.running import honest_run
from tests.worker.test_tables import end, step, write

START_MS = 1_700_000_000_000


@pytest.fixture
def now_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock on the wall, standing still until it is set."""
    now = [START_MS]
    for module in (store_module, shelved_module):
        monkeypatch.setattr(module, "wall_ms", lambda: now[0])
    return now


@pytest.fixture
def stores(tmp_path: Path, now_ms: list[int]) -> Iterator[RocksDBStores]:
    stores = RocksDBStores(load_settings(datadir=str(tmp_path), instance="w0"))
    yield stores
    stores.close()


@pytest.fixture
def store(stores: RocksDBStores) -> Iterator[RocksDBStore]:
    store = stores.open(0)
    yield store
    store.close()


def reopened(stores: RocksDBStores, store: RocksDBStore) -> RocksDBStore:
    store.close()
    return stores.open(0)


def raw(offset: int = 0, due_ms: int = 0, *, finished: bool = False) -> bytes:
    return encode_run(run_with(offset=offset, finished=finished), None, due_ms)


def gone(store: RocksDBStore, now_ms: list[int]) -> list[bytes]:
    """Runs that leave because their time is over."""
    return [leaving.key for leaving in store.expired(now_ms[0], [0] * len(RANKS), 10)]


def test_the_store_is_a_mapping_that_loses_uncommitted_changes(stores) -> None:
    chance = random.Random(7)
    store, now, kept = stores.open(0), {}, {}
    offset = -1
    for number in range(3_000):
        key = b"run-%d" % chance.randrange(60)
        match chance.choices(["put", "pop", "commit", "reopen"], [60, 20, 15, 2])[0]:
            case "put":
                store[key] = now[key] = raw(number)
            case "pop":
                store.pop(key, None)
                now.pop(key, None)
            case "commit":
                offset = number
                store.commit(offset)
                kept = dict(now)
            case "reopen":
                store = reopened(stores, store)
                now = dict(kept)
        assert store.get(key) == now.get(key)
        assert (len(store), store.offset) == (len(now), offset)
        if number % 50 == 0:
            assert sorted(store) == sorted(now)
    store.close()


def test_deadlines_equal_those_in_memory_also_after_a_restart(stores) -> None:
    chance = random.Random(11)
    store, model = stores.open(0), DeadlineQueue()
    for clock in range(0, 20_000, 10):
        key = b"run-%d" % chance.randrange(30)
        due_ms = chance.choice([0, clock + chance.randrange(1, 2_000)])
        store[key] = raw(clock, due_ms)
        model.set(key, due_ms)
        store.commit(clock)
        if clock % 700 == 0:
            store = reopened(stores, store)
        rung, expected = store.take(clock, 100), model.take(clock, 100)
        assert sorted(rung) == sorted(expected)
        assert store.take(clock, 100) == [], "each is returned once"
        for asked in rung:  # what the engine makes of it is written
            later = chance.choice([0, clock + 500])
            store[asked] = raw(clock, later)
            model.set(asked, later)
            store.commit(clock)
    store.close()


def test_a_due_run_without_an_event_is_due_again_after_a_restart(stores, store) -> None:
    store[b"a"] = raw(1, due_ms=100)
    store.commit(1)
    assert store.take(100, 10) == [b"a"]
    store.again(b"a", 150)
    assert store.take(149, 10) == []
    assert store.take(150, 10) == [b"a"]
    again = reopened(stores, store)
    assert again.take(150, 10) == [b"a"], "nothing was written since"
    again.close()


def test_finished_and_idle_runs_expire_in_time_also_over_a_restart(stores, now_ms) -> None:
    store = stores.open(0)
    store[b"idle"], store[b"busy"], store[b"done"] = raw(1), raw(2), raw(3, finished=True)
    store.commit(3)
    now_ms[0] += FINISHED_KEEP_MS
    assert gone(store, now_ms) == [b"done"]
    assert gone(store, now_ms) == []
    store = reopened(stores, store)
    assert gone(store, now_ms) == [b"done"], "its tombstone was not written"
    store.pop(b"done", None)
    store[b"busy"] = raw(4)
    store.commit(5)

    now_ms[0] = START_MS + IDLE_KEEP_MS
    assert gone(store, now_ms) == [b"idle"]
    now_ms[0] += FINISHED_KEEP_MS
    assert gone(store, now_ms) == [b"busy"]
    store.close()


def test_over_the_run_limit_the_run_idle_longest_expires(store, now_ms) -> None:
    for number in range(10):
        now_ms[0] += 1
        store[b"run-%d" % number] = raw(number)
    now_ms[0] += 1
    store[b"run-0"] = raw(10)
    store.commit(10)
    assert store.expired(now_ms[0], surplus(store.counts, 7), 100) == [
        Leaving(b"run-%d" % number, NEW, early=True) for number in (1, 2, 3)
    ]


@pytest.fixture
def runs_of(stores: RocksDBStores) -> Iterator[Callable[[], RocksDBRuns]]:
    """The runs of partition 0, as they are found each time."""
    found: list[RocksDBRuns] = []

    def runs() -> RocksDBRuns:
        for before in found:
            before.leave()
        found[:] = [RocksDBRuns(0, RunLimits(), stores.open(0))]
        return found[0]

    yield runs
    for last in found:
        last.leave()


def test_runs_are_the_same_after_a_restart(runs_of) -> None:
    mine = runs_of()
    step(mine, [*honest_run("a", 5), *honest_run("b", 3)])
    mine.stored(mine.take(), 1)
    before = decode_run(mine.raw(b"a"))[0]
    step(mine, honest_run("a", 6)[5:], first=100)

    mine = runs_of()

    assert mine.changelog_offset == 1
    assert mine.applied == 7
    assert (len(mine), mine._limits.runs) == (2, 2)
    assert sorted(mine.known()) == [b"a", b"b"]
    assert encode_run(mine.state(b"a"), None) == encode_run(before, None), "without what the broker did not have"


def test_a_store_names_only_the_offset_up_to_which_it_is_complete(runs_of) -> None:
    """Another worker has written to the changelog in between: what it wrote must be read."""
    mine = runs_of()
    for number, last_offset in enumerate((0, 1, 5, 6)):
        step(mine, honest_run("a", 9)[number : number + 1], first=number)
        mine.stored(mine.take(), last_offset)
    assert mine.changelog_offset == 1
    assert runs_of().changelog_offset == 1

    mine = runs_of()
    mine.restore(b"b", encode_run(run_with(offset=9, turns=3), None), 4)
    mine.restored(8)
    assert runs_of().changelog_offset == 8


def test_recovery_keeps_the_state_that_applied_more_of_the_log(runs_of) -> None:
    mine = runs_of()
    mine.restore(b"a", encode_run(run_with(offset=9, turns=3), None), 4)
    mine.restore(b"a", encode_run(run_with(offset=5, turns=2), None), 5)
    mine.restore(b"gone", encode_run(run_with(offset=1), None), 6)
    mine.restore(b"gone", None, 7)
    mine.restored(7)
    mine = runs_of()
    assert mine.changelog_offset == 7
    assert (len(mine), mine.state(b"a").turns) == (1, 3)


def test_a_run_with_an_event_at_its_expiry_stays(runs_of, now_ms) -> None:
    mine = runs_of()
    step(mine, [*honest_run("a", 1), *honest_run("b", 1), *honest_run("done", 1), end("done")])
    write(mine)
    now_ms[0] += IDLE_KEEP_MS
    step(mine, honest_run("a", 2)[1:], first=50)
    changes = mine.take()
    mine.stored(changes, None)
    assert sorted(key for key, raw in changes if raw is None) == [b"b", b"done"]
    assert decode_run(mine.raw(b"a"))[0].turns == 2
    assert b"b" not in mine
    assert mine.removed == 2


@pytest.mark.parametrize("fault", ["spoiled", "garbage", "flipped", "old", "from the future", "form", "former"])
def test_an_unusable_store_is_deleted(stores, tmp_path, now_ms, monkeypatch, fault) -> None:
    store = stores.open(0)
    store[b"a"] = raw()
    store.commit(5)
    if fault == "former":  # its entry about itself had another length
        store._db.put(store_module.META, bytes(36))
    store.close()
    [path] = tmp_path.glob("*/w0/0")
    match fault:
        case "spoiled":
            (path / UNREADABLE).touch()
        case "garbage":
            (path / "CURRENT").write_text("garbage")
        case "flipped":
            for table in path.glob("*.sst"):
                table.write_bytes(bytes(byte ^ 0xFF for byte in table.read_bytes()))
            assert list(path.glob("*.sst"))
        case "old":
            now_ms[0] += ROCKSDB_AGE_MAX_MS
        case "from the future":
            now_ms[0] -= 1_000
        case "form":
            monkeypatch.setattr(store_module, "FORMAT", store_module.FORMAT + 1)
    store = stores.open(0)
    assert (store.offset, len(store), store.get(b"a")) == (-1, 0, None)
    store[b"b"] = raw()
    store.commit(0)
    store.close()


def test_a_store_that_proves_unreadable_is_not_used_again(stores, tmp_path) -> None:
    store = stores.open(0)
    for number in range(2_000):
        store[b"run-%d" % number] = raw() + random.Random(number).randbytes(1_000)
    store.commit(5)
    store.close()
    store = stores.open(0)
    [path] = tmp_path.glob("*/w0/0")
    for table in path.glob("*.sst"):
        content = bytearray(table.read_bytes())
        for place in range(0, len(content) - 200_000, 997):
            content[place] ^= 0xFF
        table.write_bytes(content)
    with pytest.raises(RocksDBFailed, match="Corruption"):
        [store.get(b"run-%d" % number) for number in range(2_000)]
    assert reopened(stores, store).offset == -1


def test_two_workers_do_not_share_a_directory(stores, tmp_path) -> None:
    with pytest.raises(InvalidSettings, match="give each worker a STREAMPROC_INSTANCE of its own"):
        RocksDBStores(load_settings(datadir=str(tmp_path), instance="w0"))
    RocksDBStores(load_settings(datadir=str(tmp_path), instance="w1")).close()


def test_an_unwritable_directory_is_named(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSettings, match=r"STREAMPROC_DATADIR: .*file"):
        RocksDBStores(load_settings(datadir=str(tmp_path / "file")))


def test_runs_of_a_deleted_topic_are_deleted(stores) -> None:
    store = stores.open(0)
    store[b"a"] = raw()
    store.commit(5)
    store.discard()
    assert reopened(stores, store).offset == -1
