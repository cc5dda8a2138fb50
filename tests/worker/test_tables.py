"""The table of runs: written once per change, expired by the clock, and restored from the changelog."""

from __future__ import annotations

import pytest
from faust.types import TP
from hypothesis import example, given, strategies as st

from streamproc.core.accounts import ACCOUNT_VERSION, Account, AccountRef, Statement, dump_account, write_statement
from streamproc.core.scope import Scope
from streamproc.core.spend_windows import SpendEntry
from streamproc.model import wire
from streamproc.policy import load_policy
from streamproc.worker import codec, tables
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.codec import decode_run, encode_run
from streamproc.worker.eviction import rank_of
from streamproc.worker.limits import ACCOUNT_KEEP_MS, FINISHED_KEEP_MS, IDLE_KEEP_MS
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.runs_table import RunStore
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.feeding import Feed, run_with
from tests.states import HEAD, first_fields, framed
from tests.worker.records import NOON_MS, TOPIC, records_of
from tests.worker.running import event_record, honest_run, looping_run


def runs(run_limits: RunLimits | None = None) -> Runs:
    return Runs(0, run_limits or RunLimits())


def step(mine: Runs, pairs, first: int = 0, at_ms: int = NOON_MS) -> None:
    worker = TurnProcessor(load_policy().engine(), TOPIC, event_bytes_max=4096, dead_letter_bytes=4096, version="1")
    worker.accept(mine, records_of(pairs, first, at_ms))


def write(mine: Runs) -> list[bytes]:
    changes = mine.take()
    mine.stored(changes, 0)
    return [key for key, raw in changes if raw is not None]


def end(run_id: str) -> tuple[bytes, bytes]:
    return event_record(wire.RunFinished(w=1, run_id=run_id, event_id=f"{run_id}/end"))


def test_a_state_with_several_changes_is_written_once() -> None:
    mine = runs()
    step(mine, [*honest_run("a", 20), *honest_run("b", 3)])
    changes = mine.take()
    assert [key for key, _ in changes] == [b"a", b"b"]
    assert decode_run(changes[0][1])[0].turns == 20
    assert mine.take() == []


def test_a_state_is_the_same_after_it_was_written_and_read() -> None:
    mine, again = runs(), runs()
    step(mine, honest_run("a", 20))
    before = encode_run(mine.state(b"a"), None)
    for offset, (key, raw) in enumerate(mine.take()):
        again.restore(key, raw, offset)
    assert encode_run(again.state(b"a"), None) == before
    assert again.changelog_offset == 0


@pytest.mark.parametrize("halt", [None, b'{"id": "x"}'])
def test_the_decision_that_halted_a_run_travels_with_its_state(halt: bytes | None) -> None:
    raw = encode_run(run_with(turns=7), halt)
    found, decision = decode_run(raw)
    assert (found.turns, decision, encode_run(found, halt)) == (7, halt, raw)


def test_a_state_on_its_way_to_the_broker_is_readable_before_it_is_stored() -> None:
    mine = runs()
    step(mine, honest_run("a", 2))
    changes = mine.take()
    mine.active.clear()
    assert mine.state(b"a").turns == 2
    step(mine, honest_run("a", 3)[2:], first=2)
    mine.stored(changes, 0)
    assert [decode_run(raw)[0].turns for _, raw in mine.take()] == [3]


def test_the_number_of_decoded_runs_is_bounded_and_a_changed_one_is_never_lost() -> None:
    run_limits = RunLimits()
    run_limits.active_share = 10
    mine = runs(run_limits)
    for number in range(200):
        step(mine, honest_run(f"run-{number}", 1), first=number)
        if number % 7 == 0:
            write(mine)
        assert len(mine.active) + len(mine._cached) <= 40
    write(mine)
    assert len(mine) == 200
    assert all(mine.state(f"run-{number}".encode()).turns == 1 for number in range(200))


def clocked() -> tuple[RunLimits, list[int]]:
    """Run limits whose clock stands still until it is set."""
    run_limits, now_ms = RunLimits(), [0]
    run_limits.now_ms = lambda: now_ms[0]
    return run_limits, now_ms


def test_a_finished_run_is_removed_after_a_while() -> None:
    run_limits, now_ms = clocked()
    mine = runs(run_limits)
    step(mine, [*honest_run("done", 2), end("done"), *honest_run("open", 2)])
    write(mine)
    now_ms[0] += FINISHED_KEEP_MS - 1
    step(mine, honest_run("other", 1), 10)
    assert write(mine) == [b"other"]
    assert b"done" in mine

    now_ms[0] += 2
    step(mine, honest_run("other", 2)[1:], 11)
    changes = mine.take()
    mine.stored(changes, 0)

    assert (b"done", None) in changes
    assert b"done" not in mine
    assert b"open" in mine
    assert mine.load(b"done") is None


def test_an_idle_run_is_removed_later_and_a_busy_one_is_not() -> None:
    run_limits, now_ms = clocked()
    mine = runs(run_limits)
    step(mine, [*honest_run("idle", 1), *honest_run("busy", 1)])
    write(mine)
    now_ms[0] += 1000
    step(mine, honest_run("busy", 2)[1:], 5)
    write(mine)
    now_ms[0] += IDLE_KEEP_MS - 500
    step(mine, honest_run("new", 1), 6)
    write(mine)
    assert b"idle" not in mine
    assert b"busy" in mine


def test_an_imported_log_with_times_months_apart_makes_no_run_expire() -> None:
    mine = runs()
    step(mine, honest_run("november", 1), at_ms=NOON_MS)
    write(mine)
    step(mine, [*honest_run("april", 1), end("april")], 5, at_ms=NOON_MS + 150 * 86_400_000)
    write(mine)
    step(mine, honest_run("november", 2)[1:], 7, at_ms=NOON_MS + 1000)
    write(mine)
    assert decode_run(mine.raw(b"november"))[0].turns == 2
    assert b"april" in mine


def test_one_run_over_the_limit_evicts_the_one_that_is_idle_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.worker.run_limits.RUNS_MAX", 3)
    mine = runs()
    for number in range(5):
        step(mine, honest_run(f"run-{number}", 1), first=number)
        write(mine)
    step(mine, honest_run("run-2", 2)[1:], first=9)
    write(mine)
    assert len(mine) == 3
    assert b"run-0" not in mine
    assert b"run-2" in mine
    assert mine.removed == 2


def test_a_flood_of_runs_evicts_as_many_as_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more come with each write than one sweep would take away."""
    monkeypatch.setattr("streamproc.worker.run_limits.RUNS_MAX", 20)
    monkeypatch.setattr(tables, "SWEEP_RUNS_MAX", 2)
    run_limits = RunLimits()
    mine = runs(run_limits)
    for wave in range(10):
        step(mine, [pair for number in range(15) for pair in honest_run(f"run-{wave}-{number}", 1)], first=100 * wave)
        write(mine)
        assert run_limits.runs == len(mine) <= 20 + 15
    assert run_limits.evicted == mine.removed == 10 * 15 - len(mine)


def test_a_tombstone_in_the_changelog_removes_the_run() -> None:
    mine = runs()
    step(mine, honest_run("a", 1))
    [(key, raw)] = mine.take()
    again = runs()
    again.restore(key, raw, 0)
    again.restore(key, None, 1)
    assert key not in again
    assert len(again) == 0


def test_of_two_states_the_one_that_has_applied_more_wins() -> None:
    """A worker that was thought dead wrote its older state after its successor's newer one."""
    older, newer = (encode_run(run_with(partition=0, offset=offset, turns=offset), None) for offset in (5, 9))
    mine = runs()
    for place, raw in enumerate((older, newer, older)):
        mine.restore(b"a", raw, place)
    assert mine.state(b"a").turns == 9


def test_a_batch_of_the_changelog_restores_what_its_records_restore_one_by_one() -> None:
    open_run, new, finished, halted = (
        run_with(offset=9, turns=9), run_with(offset=5, turns=1), run_with(offset=12, finished=True),
        run_with(offset=3, halted=2),
    )  # fmt: skip
    raws = [
        (b"open", encode_run(open_run, None, 70)), (b"new", encode_run(new, None)),
        (b"open", encode_run(new, None, 30)),
        (b"halted", encode_run(halted, b"{}")), (b"stub", encode_run(halted, None)), (b"new", None), (b"gone", None),
        (b"finished", encode_run(finished, None)), (b"other", OTHER_VERSION), (b"halted", encode_run(finished, None)),
        (b"last", encode_run(finished, None)),
    ]  # fmt: skip
    found = []
    for in_batches in (False, True):
        mine = runs()
        mine._limits.now_ms = lambda: NOON_MS
        records = records_of(raws)
        if in_batches:
            mine.restore_batch(records[:6])
            mine.restore_batch(records[6:])
        else:
            for record in records:
                mine.restore(record.key, record.value, record.offset)
        due, again = mine.deadline_queue.take(100, 9), mine.overwritten.copy()
        counts = (mine._limits.runs, mine.applied, mine.unreadable, mine.changelog_offset)
        found.append((mine._stored, mine._expiries, due, again, counts))
    assert found[0] == found[1]
    assert found[1][2:] == ([b"open"], {b"open"}, (5, 12, 1, 10))


def test_a_batch_from_the_changelog_moves_a_run_whose_write_is_under_way() -> None:
    mine = runs()
    step(mine, honest_run("a", 1))
    mine.take()
    mine.restore_batch(records_of([(b"a", encode_run(run_with(offset=9, turns=9), None))]))
    assert [len(by_run) for by_run in mine._expiries] == [0, 0, 1, 0, 0]


def test_of_two_accounts_the_one_that_has_booked_more_wins() -> None:
    older, newer = (dump_account(Account(offset=offset, applied={0: offset})) for offset in (5, 9))
    mine = AccountPartition(0, lambda: 0)
    for place, raw in enumerate((older, newer, older, b"garbage")):
        mine.restore(b"user:ann", raw, place)
        assert mine.changelog_offset == place
        if place == 2:
            assert mine.load(b"user:ann").applied == {0: 9}
    assert len(mine) == 0, "of another version: the account starts empty"


def test_an_account_whose_statement_is_read_again_keeps_its_place_in_the_log() -> None:
    entries = [SpendEntry(0, offset, NOON_MS, 1, 1, 0, first=True) for offset in (5, 9)]
    payer = AccountRef("r", 0, False, [], [], [])
    statements = [Statement(ACCOUNT_VERSION, "user:/ann", 0, [payer], [entry]) for entry in entries]
    records = records_of([(b"user:/ann", write_statement(statement)) for statement in statements])
    accounts, book = AccountPartition(0, lambda: 0), AccountProcessor("spend", version="1", dead_letter_bytes=1_024)
    book.accept(accounts, records)
    book.accept(accounts, records[:1])
    assert accounts.load(b"user:/ann").offset == 1


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_a_statement_that_fails_halfway_leaves_the_account_as_it_was(stored: int) -> None:
    """Whether what was booked before it is stored or not."""
    payer = AccountRef("r", 0, False, [], [], [])
    booked = [[SpendEntry(0, 5, NOON_MS, 1, 1, 0)], [SpendEntry(0, 6, NOON_MS, 1, 1, 0)]]
    halfway = [SpendEntry(0, 7, NOON_MS, 1, 1, 0), SpendEntry(9, 8, NOON_MS, 1, 1, 0)]  # there is no payer 9
    records = records_of(
        [
            (b"user:/ann", write_statement(Statement(ACCOUNT_VERSION, "user:/ann", 0, [payer], entries)))
            for entries in [*booked, halfway]
        ]
    )
    accounts, book = AccountPartition(0, lambda: 0), AccountProcessor("spend", version="1", dead_letter_bytes=1_024)
    for place, record in enumerate(records):
        if place == stored:
            accounts.take()
        refused = book.accept(accounts, [record])
        assert [one.topic for one in refused] == (["dead-letter"] if place == 2 else [])
    account = accounts.load(b"user:/ann")
    assert isinstance(account, Account)
    assert (account.applied, account.offset, account.windows["hour"].tokens) == ({0: 6}, 1, 2)


def test_an_account_that_has_expired_and_is_charged_again_is_stored() -> None:
    now = [0]
    accounts = AccountPartition(0, lambda: now[0])
    for name in (b"user:/ann", b"user:/bob"):
        accounts.book(name, 0, lambda _: [])
    accounts.take()
    now[0] = ACCOUNT_KEEP_MS + 1
    for name in (b"user:/bob", b"user:/ann"):
        accounts.book(name, 1, lambda _: [])
    assert [key for key, raw in accounts.take(1) if raw is not None] == [b"user:/bob"]
    assert [key for key, raw in accounts.take(1) if raw is not None] == [b"user:/ann"]


def test_a_state_that_an_expelled_worker_overwrote_is_written_again() -> None:
    """Compaction keeps the last record of a key, and that is the older state."""
    older, newer = (encode_run(run_with(partition=0, offset=offset, turns=offset), None) for offset in (5, 9))
    mine = runs()
    for place, (key, raw) in enumerate([(b"a", newer), (b"a", older), (b"b", newer), (b"b", older), (b"b", newer)]):
        mine.restore(key, raw, place)
    assert mine.take() == [(b"a", newer)]
    assert mine.take() == []


def test_an_account_that_an_expelled_worker_overwrote_is_written_again() -> None:
    older, newer = (dump_account(Account(offset=offset, applied={0: offset})) for offset in (5, 9))
    accounts = AccountPartition(0, lambda: 0)
    for place, raw in enumerate((newer, older)):
        accounts.restore(b"user:ann", raw, place)
    assert accounts.take() == [(b"user:ann", newer)]
    assert accounts.take() == []


OTHER_VERSION = framed(b"\x63" + Feed().stored[1:])
OTHER_LAYOUT = framed(HEAD[:1] + b"\x01" * 400)


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\xff" * 40])
def test_what_is_no_state_is_ignored_and_counted(raw: bytes) -> None:
    mine = runs()
    mine.restore(b"a", raw, 3)
    assert b"a" not in mine
    assert (mine.unreadable, mine.of_another_version) == (1, set())
    assert mine.changelog_offset == 3


@pytest.mark.parametrize("raw", [OTHER_VERSION, OTHER_LAYOUT])
@pytest.mark.parametrize("in_a_batch", [True, False])
def test_a_state_of_another_version_is_noted_until_it_is_replaced(raw: bytes, in_a_batch: bool) -> None:
    mine = runs()

    def restore(value: bytes | None, offset: int) -> None:
        if in_a_batch:
            mine.restore_batch(records_of([(b"a", value)], first=offset))
        else:
            mine.restore(b"a", value, offset)

    for replacement in (encode_run(run_with(offset=5), None), None):
        restore(raw, 3)
        assert mine.of_another_version == {b"a"}
        restore(replacement, 4)
        assert mine.of_another_version == set()


@pytest.mark.parametrize("partition", [-1, 3, 200, 70_000])
@pytest.mark.parametrize("offset", [-1, 0, 127, 128, 255, 256, 65_535, 65_536, 1 << 33, 1 << 62])
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("halted", [-1, 0, 127, 128, 70_000])
@pytest.mark.parametrize("halt", [None, b"{}"])
def test_peeking_at_a_state_gives_the_values_of_decoding_it(
    partition: int, offset: int, finished: bool, halted: int, halt: bytes | None
) -> None:
    for turns, at_ms in ((0, 0), (3, 1), (4, -1), (40, NOON_MS), (300, -5), (70_000, 1 << 40)):
        state = run_with(
            partition=partition, offset=offset, turns=turns, call_turns=turns, at_ms=at_ms, finished=finished,
            halted=halted,
        )  # fmt: skip
        assert codec.peek_run(encode_run(state, halt, NOON_MS)) == (offset, rank_of(state, halt))


def test_an_unreadable_state_is_replaced_by_an_empty_one(caplog: pytest.LogCaptureFixture) -> None:
    mine = Runs(97, RunLimits())  # lines about a partition are limited
    whole = encode_run(run_with(offset=3, turns=4), None)
    mine.restore(b"r", whole[:-3], 0)
    step(mine, honest_run("r", 2), first=4)
    assert mine.state(b"r").turns == 2
    assert mine.unreadable == 1
    assert "the stored state of run b'r' is unreadable; the run starts from an empty state" in caplog.text


@example(at=55, flip=0x80, cut=0)  # the sign of the number of turns
@given(at=st.integers(len(HEAD), 600), flip=st.integers(1, 255), cut=st.integers(0, 600))
def test_no_damage_lifts_a_halt_that_can_be_seen_or_ends_the_worker(at: int, flip: int, cut: int) -> None:
    whole = bytearray(codec.state_bytes(encode_run(run_with(offset=3, turns=4, halted=3), None)))
    whole[at % (len(whole) - len(HEAD)) + len(HEAD)] ^= flip
    state = bytes(whole[: max(len(whole) - cut, len(HEAD))])
    mine = Runs(98, RunLimits())
    mine.restore(b"r", framed(state) + b"{}", 0)
    head = first_fields(state)
    if b"r" in mine and head is not None and head.halted >= 0:
        assert mine.state(b"r").halted == head.halted
    else:
        mine.state(b"r")


@pytest.mark.parametrize("cut", [1, 3, 40])
def test_a_halted_run_stays_halted_if_its_state_is_damaged(caplog: pytest.LogCaptureFixture, cut: int) -> None:
    mine = Runs(cut, RunLimits())  # lines about a partition are limited
    state = codec.state_bytes(encode_run(run_with(offset=3, turns=4, halted=3), None))[:-cut]
    mine.restore(b"r", framed(state) + b'{"code":"LOOP003"}', 0)
    step(mine, honest_run("r", 2), first=4)
    assert (mine.state(b"r").halted, mine.state(b"r").turns) == (3, 6)
    assert mine.halts[b"r"] == b'{"code":"LOOP003"}'
    [(_, written)] = mine.take()
    assert codec.decode_run(written)[0].halted == 3
    assert "the run stays halted, without its spend and evidence" in caplog.text


@pytest.mark.parametrize("halt", [b"{", b'{"code":3}', b'{"unknown":' + b"[" * 5_000])
def test_a_damaged_halt_in_the_changelog_stops_no_worker(halt: bytes) -> None:
    mine = Runs(0, RunLimits())
    mine.restore(b"r", encode_run(run_with(offset=3, turns=4, halted=3), halt), 0)
    processor = TurnProcessor(
        load_policy("standard").engine(), "turns", event_bytes_max=4_096, dead_letter_bytes=1_024, version="1"
    )
    finished = b'{"w":1,"type":"run.finished","run_id":"r"}'
    statuses = [one for one in processor.accept(mine, records_of([(b"r", finished)], first=4)) if one.topic == "runs"]
    assert [b'"status":"halted"' in (one.value or b"") for one in statuses] == [True]


def test_run_limits_count_a_run_once_however_often_it_was_written() -> None:
    run_limits = RunLimits()
    mine = runs(run_limits)
    for place, raw in enumerate((*(encode_run(run_with(offset=offset), None) for offset in (1, 2, 0)), None, None)):
        mine.restore(b"a", raw, place)
        assert run_limits.runs == len(mine) == (place < 3)


def test_run_limits_count_the_runs_of_all_partitions() -> None:
    run_limits = RunLimits()
    one, two = Runs(0, run_limits), Runs(1, run_limits)
    step(one, honest_run("a", 1))
    step(two, [*honest_run("b", 1), *honest_run("c", 1)])
    write(one)
    write(two)
    assert run_limits.runs == 3
    two.leave()
    assert run_limits.runs == 1


def test_a_state_that_has_grown_too_large_is_reset_and_stays_halted() -> None:
    mine = runs()
    step(mine, looping_run("a", 3))
    state = mine.state(b"a")
    state.set_scope(Scope(budgets={f"budget-{number}": number for number in range(4_000)}))
    state.cold.node_names = dict.fromkeys(range(2000), "node")
    mine.active[b"a"] = mine.states.close(state)
    [(_, raw)] = mine.take()
    state = decode_run(raw)[0]
    assert len(raw) < 1024
    assert (state.halted, state.turns, state.offset, state.scope.budgets) == (2, 3, 2, {})


def test_runs_of_a_recreated_topic_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Its offsets start again, below those that the runs have applied. Records stepped since then do not matter."""
    store = RunStore.__new__(RunStore)
    store.run_limits, store.partitions = RunLimits(), {}
    for partition in (0, 1):
        before = runs()
        step(before, honest_run(f"run-{partition}", 5))
        for key, raw in before.take():
            store.partition_of(partition).restore(key, raw, 0)
        step(store.partition_of(partition), honest_run("new", 1), first=70)

    store.forget_another_log({0: 5, 1: 4, 2: 0})

    assert set(store.partitions) == {0}
    assert "the turns topic was recreated; dropping 1 runs of partition 1" in caplog.text


@pytest.mark.parametrize("part", [runs(), AccountPartition(0, lambda: 0)])
def test_own_records_count_as_read_unless_records_of_another_worker_precede_them(part) -> None:
    """Who was expelled, and does not know it yet, writes behind its successor, which it has not read."""
    part.stored([(b"a", b"1"), (b"b", b"2")], 1)
    assert part.changelog_offset == 1
    part.stored([(b"a", b"3")], 2)
    assert part.changelog_offset == 2
    part.stored([(b"a", b"4"), (b"b", b"5")], 6)
    assert part.changelog_offset == 2, "3 and 4 are records of another worker"
    part.stored([(b"a", b"6")], None)
    assert part.changelog_offset == 2


def test_a_partition_is_restored_from_its_known_offset_or_from_its_beginning() -> None:
    store = RunStore.__new__(RunStore)
    store.run_limits, store.partitions = RunLimits(), {}
    assert store.persisted_offset(TP("changelog", 0)) == -1
    store.partition_of(0).restore(b"a", None, 7)
    assert store.persisted_offset(TP("changelog", 0)) == 7
    store.leave(0)
    assert store.persisted_offset(TP("changelog", 0)) == -1
