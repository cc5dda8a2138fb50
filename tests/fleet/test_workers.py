"""Which workers live, and which partitions they watch, as a reader of their heartbeats knows it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from streamproc.errors import InvalidEvent
from streamproc.fleet.keyring import Keyring, new_keys
from streamproc.fleet.record_signing import RecordSigner
from streamproc.fleet.workers import (
    CLAIMS_MAX,
    DISCONNECTED_AFTER_S,
    FORGET_AFTER_MS,
    GONE_AFTER_S,
    REJOIN_S,
    WORKERS_MAX,
    UnwatchedPartition,
    Waiting,
    WatchState,
    Workers,
)
from streamproc.model.heartbeat import (
    HEARTBEAT_BYTES_MAX,
    PROVIDERS_MAX,
    LaggingPartition,
    encode_heartbeat,
    read_heartbeat,
)
from streamproc.model.provider_state import ProviderState
from tests.fleet.heartbeats import NOON_MS, as_record, heartbeat

KEY, PUBLIC = new_keys("workers", ed25519=True)
UNSIGNED = RecordSigner(Keyring(), "streamproc", required=False)
SIGNER = RecordSigner(Keyring([KEY]), "streamproc", required=True)
READER = RecordSigner(Keyring([PUBLIC]), "streamproc", required=True)
STRANGER = RecordSigner(Keyring([new_keys("workers", ed25519=True)[0]]), "streamproc", required=True)

ALL = (0, 1, 2, 3)


class Listening:
    """A reader of the topic, in a time of its own: the broker's clock and its monotonic one go together."""

    def __init__(self, signer: RecordSigner = UNSIGNED, shadow: str = "") -> None:
        self.workers = Workers(signer, shadow)
        self.now_s = 1_000.0

    @property
    def now_ms(self) -> int:
        return NOON_MS + round((self.now_s - 1_000) * 1_000)

    def begin(self) -> Listening:
        self.workers.contact(self.now_s)
        return self

    def listen_for_workers(self, worker: str = "w1", state: str = "deciding", owned=ALL, **fields) -> None:
        self.workers.apply(as_record(heartbeat(worker, self.now_ms, state, owned, **fields)), self.now_s)

    def wait(self, seconds: float, *hearing: str, owned=ALL) -> None:
        """Let time pass in contact with the broker; these workers give their heartbeats."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(until_s, self.now_s + 1.0)
            for worker in hearing:
                self.listen_for_workers(worker, owned=owned)
            self.workers.contact(self.now_s)

    @property
    def state(self) -> WatchState:
        return self.workers.state(self.now_s)


def test_a_reader_that_never_heard_of_a_worker_knows_nothing() -> None:
    one = Listening()
    assert one.state.name == "unknown"
    one.begin().wait(1_000)
    assert one.state == WatchState("unknown")
    assert one.workers.unwatched() == []


def test_a_worker_is_watched_until_it_was_silent_for_too_long() -> None:
    one = Listening().begin()
    one.listen_for_workers()
    last_ms = one.now_ms
    assert one.state == WatchState("watching")
    one.wait(GONE_AFTER_S)
    assert one.state == WatchState("watching")
    one.wait(0.5)
    assert one.state == WatchState("unwatched", last_ms)
    assert [row.state for row in one.workers.rows()] == ["silent"]
    assert one.workers.unwatched() == [UnwatchedPartition(number, last_ms) for number in ALL]


def test_a_clean_stop_is_known_at_once() -> None:
    one = Listening().begin()
    one.wait(20, "w1")
    one.now_s += 0.1
    one.listen_for_workers("w1", "stopped")
    assert one.state == WatchState("unwatched", one.now_ms)
    assert [row.state for row in one.workers.rows()] == ["stopped"]


def test_what_was_on_the_topic_before_says_nothing_about_now() -> None:
    one = Listening()
    one.listen_for_workers()
    last_ms = one.now_ms
    one.begin()
    assert one.state.name == "unknown"
    one.wait(GONE_AFTER_S)
    assert one.state.name == "unknown"
    one.wait(1)
    assert one.state == WatchState("unwatched", last_ms)
    one.wait(1, "w1")
    assert one.state.name == "watching"


def test_a_stopped_fleet_is_known_to_a_new_reader_at_once() -> None:
    one = Listening()
    one.listen_for_workers("w1", "stopped")
    assert one.begin().state == WatchState("unwatched", one.now_ms)


def test_a_broker_that_does_not_answer_is_no_silence_of_workers() -> None:
    one = Listening().begin()
    one.wait(20, "w1")
    one.now_s += DISCONNECTED_AFTER_S + 1
    assert one.state == WatchState("disconnected", for_s=DISCONNECTED_AFTER_S + 1)
    one.now_s += 600
    one.workers.contact(one.now_s)
    assert one.state.name == "watching"  # workers could not reach it either
    one.wait(REJOIN_S + GONE_AFTER_S)
    assert one.state.name == "watching"
    one.wait(1)
    assert one.state.name == "unwatched"


def test_those_who_were_gone_before_an_outage_are_gone_after_it() -> None:
    one = Listening().begin()
    one.wait(20, "w1")
    one.wait(30)
    assert one.state.name == "unwatched"
    one.now_s += 60
    one.workers.contact(one.now_s)
    assert one.state.name == "unwatched"


def test_a_worker_that_restores_decides_on_nothing() -> None:
    one = Listening().begin()
    one.wait(20, "w1")
    last_ms = one.now_ms
    for _ in range(10):
        one.wait(1)
        one.listen_for_workers("w1", "restoring", deciding_at=last_ms)
    assert one.state == WatchState("unwatched", last_ms)
    assert [row.state for row in one.workers.rows()] == ["restoring"]
    one.wait(1, "w1")
    assert one.state.name == "watching"


def test_a_short_rebalance_is_no_alarm() -> None:
    one = Listening().begin()
    one.wait(20, "w1")
    for _ in range(4):
        one.wait(1)
        one.listen_for_workers("w1", "restoring", deciding_at=one.now_ms - 1_000)
        assert (one.state.name, one.workers.unwatched()) == ("watching", [])


def test_partitions_of_a_dead_worker_are_unwatched_until_another_one_has_them() -> None:
    one = Listening().begin()
    one.wait(20, "w1", owned=(0, 1))
    one.listen_for_workers("w2", owned=(2, 3))
    died_ms = one.now_ms
    one.wait(GONE_AFTER_S + 1, "w1", owned=(0, 1))
    assert one.state.name == "watching"
    assert one.workers.unwatched() == [UnwatchedPartition(2, died_ms), UnwatchedPartition(3, died_ms)]
    assert one.workers.state(one.now_s, 0).name == "watching"
    assert one.workers.state(one.now_s, 3) == WatchState("unwatched", died_ms)
    one.wait(1, "w1")
    assert one.workers.unwatched() == []


def test_a_partition_that_no_worker_has_ever_had_counts() -> None:
    one = Listening().begin()
    one.wait(20, "w1", owned=(0, 1, 2))
    assert one.workers.unwatched() == [UnwatchedPartition(3, 0)]


def test_a_worker_that_restores_does_not_move_positions_back() -> None:
    one = Listening().begin()
    one.listen_for_workers("w1", owned=(0,), positions=[10])
    one.wait(1)
    one.listen_for_workers("w2", owned=(0,), positions=[50])
    one.wait(1)
    one.listen_for_workers("w1", "restoring", owned=(0,), positions=[10])
    assert one.workers.positions() == {0: 50}
    assert one.workers.waiting({0: 60, 1: 7}) == Waiting(10, 1, 2)


def test_lagging_partitions_have_their_delay() -> None:
    one = Listening().begin()
    late = [LaggingPartition(partition=1, records=7, delay_ms=60_000)]
    one.listen_for_workers("w1", lagging=late)
    assert [tuple(lag) for lag in one.workers.lagging(30_000)] == [(1, "w1", 7, 60_000)]
    assert one.workers.lagging(60_001) == []


@pytest.mark.parametrize("late_ms", [GONE_AFTER_S * 1000 + 1, -GONE_AFTER_S * 1000 - 1])
def test_a_recorded_heartbeat_that_is_sent_again_does_not_count(late_ms: float) -> None:
    one = Listening(READER).begin()
    beat = as_record(heartbeat(), by=SIGNER, late_ms=int(late_ms))
    assert one.workers.apply(beat, one.now_s) is None
    assert (one.state.name, one.workers.refused) == ("unknown", 1)


def test_a_heartbeat_counts_once() -> None:
    one = Listening(READER).begin()
    beat = as_record(heartbeat(), by=SIGNER)
    assert one.workers.apply(beat, one.now_s) is not None
    one.wait(GONE_AFTER_S - 1)
    again = beat.__class__(**{**vars(beat), "timestamp": beat.timestamp + 7_000, "offset": 9})
    assert one.workers.apply(again, one.now_s) is None
    one.wait(2)
    assert one.state.name == "unwatched"


@pytest.mark.parametrize(
    "by", [None, RecordSigner(Keyring([new_keys("workers", ed25519=True)[0]]), "streamproc", required=True)]
)
def test_only_workers_give_heartbeats_if_a_control_key_is_set(by: RecordSigner | None) -> None:
    one = Listening(READER).begin()
    assert one.workers.apply(as_record(heartbeat(), by=by), one.now_s) is None
    assert one.state.name == "unknown"
    assert one.workers.refusal.field == "signature"


def test_a_shadow_is_no_worker_of_the_fleet() -> None:
    one = Listening().begin()
    one.listen_for_workers("w1", shadow="stricter")
    assert (one.state.name, one.workers.refused) == ("unknown", 1)
    shadow = Listening(shadow="stricter").begin()
    shadow.listen_for_workers("w1", shadow="stricter")
    assert shadow.state.name == "watching"


def test_a_tombstone_removes_only_who_was_silent_for_a_day() -> None:
    one = Listening().begin()
    one.listen_for_workers("w1")
    for age_ms, left in ((FORGET_AFTER_MS, ["w1"]), (FORGET_AFTER_MS + 1, [])):
        one.workers.apply(as_record(None, key=b"w1", at_ms=NOON_MS + age_ms), one.now_s)
        assert [row.heartbeat.worker for row in one.workers.rows()] == left


def test_names_without_end_take_bounded_memory() -> None:
    one = Listening().begin()
    for number in range(2 * WORKERS_MAX):
        one.now_s += 0.01
        one.listen_for_workers(f"w{number}")
    assert len(one.workers.rows()) == WORKERS_MAX
    many = list(range(9_000))
    for number in range(50):
        one.now_s += 0.01
        one.listen_for_workers(f"large{number}", owned=many, of=9_000)
    assert sum(len(row.heartbeat.partitions) for row in one.workers.rows()) <= CLAIMS_MAX
    assert len(one.workers.positions()) == 9_000


@pytest.mark.parametrize(("value", "key", "field"), [
    (None, b"w1", "heartbeat"), (b"{}", b"w1", "heartbeat"), (b"[" * 100_000, b"w1", "heartbeat"),
    (b" " * (HEARTBEAT_BYTES_MAX + 1), b"w1", "heartbeat"),
    (b'{"w":1,"worker":"w1","state":"deciding","at":1}', b"w2", "key"),
    (b'{"w":1,"worker":"w1","state":"deciding","at":1,"of":1,"partitions":[0]}', b"w1", "positions"),
    (b'{"w":1,"worker":"w1","state":"deciding","at":1,"of":1,"partitions":[1],"positions":[0]}', b"w1", "partitions"),
    (b'{"w":2,"worker":"w1","state":"deciding","at":1}', b"w1", "heartbeat"),
    (b'{"w":1,"worker":"\xed\xa0\x80","state":"deciding","at":1}', b"w1", "heartbeat"),
])  # fmt: skip
def test_an_unusable_heartbeat_names_its_field(value: bytes | None, key: bytes, field: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        read_heartbeat(value, key)
    assert [problem.field for problem in refused.value.problems] == [field]


# Properties.

WORLD_S = 60
NAMES = ("w1", "w2", "w3")
LIVES = st.tuples(st.integers(0, WORLD_S), st.integers(0, WORLD_S), st.sampled_from(["kill", "stop"]))
OUTAGES = st.lists(st.tuples(st.integers(0, WORLD_S), st.integers(0, 20)), max_size=3)


@given(lives=st.lists(LIVES, max_size=3), joins=st.integers(0, WORLD_S), outages=OUTAGES, freezes=OUTAGES)
def test_an_alarm_is_raised_in_time_and_never_while_a_worker_lives(lives, joins, outages, freezes) -> None:
    """Workers live and die, the broker goes away, the reader joins, freezes, and loses the broker on its own."""
    one = Listening()
    log: list[tuple[str, str, int]] = []
    read = 0
    up_for = 0  # seconds since the broker is up
    lost_s = 0  # for how many seconds nothing came from a worker, as far as the reader could know
    for second in range(2 * WORLD_S):
        up = not any(begin <= second < begin + length for begin, length in outages)
        alive = [name for name, (begin, end, _) in zip(NAMES, lives, strict=False) if begin <= second < end]
        if up and second % 2 == 0:
            log += [(name, "deciding", one.now_ms) for name in alive]
        if up:
            for name, (begin, end, way) in zip(NAMES, lives, strict=False):
                if second == end > begin and way == "stop":
                    log.append((name, "stopped", one.now_ms))
        runs = second >= joins and not any(begin <= second < begin + length for begin, length in freezes)
        if runs and up:
            for name, state, at_ms in log[read:]:
                one.workers.apply(as_record(heartbeat(name, at_ms, state, ALL)), one.now_s)
            read = len(log)
            one.workers.contact(one.now_s)
        lost_s = lost_s + 1 if runs and up and not alive else 0
        state = one.state.name
        if not log:
            assert state != "unwatched"
        up_for = up_for + 1 if up else 0
        steady = any(lives[NAMES.index(name)][0] + 1 < second for name in alive)
        if runs and steady and up_for > 1:  # a reader that is frozen says nothing
            assert state != "unwatched", second
        if lost_s > GONE_AFTER_S + DISCONNECTED_AFTER_S + REJOIN_S and log and read:
            assert state == "unwatched", second
        one.now_s += 1


@given(st.lists(st.one_of(st.binary(max_size=300), st.sampled_from([b"{}", b"null", b"[]"])), max_size=20), st.binary())
def test_no_record_is_mishandled(values: list[bytes], key: bytes) -> None:
    one = Listening().begin()
    for value in values:
        record = as_record(heartbeat())
        one.workers.apply(record.__class__(**{**vars(record), "value": value, "key": key}), one.now_s)
    assert one.workers.refused == len(values)
    assert one.state.name == "unknown"


def test_a_heartbeat_of_providers_with_long_names_is_still_read() -> None:
    """Publishers choose these names: a heartbeat that no reader takes would let the worker seem gone."""
    worst = {"reason": "\x01" * 256, "why": "\x01" * 256, "permits": ["\x01" * 128] * 10}
    states = [ProviderState(provider=f"{n:03}" + "\x01" * 253, state="open", **worst) for n in range(PROVIDERS_MAX)]
    lagging = [LaggingPartition(partition=n, records=2**53, delay_ms=2**53) for n in range(1_000)]
    beat = heartbeat(owned=range(10_000), of=10_000, providers=states, lagging=lagging)
    kept = read_heartbeat(encode_heartbeat(beat))
    assert kept.partitions == beat.partitions
    assert 0 < len(kept.providers) < PROVIDERS_MAX
    assert kept.providers == states[: len(kept.providers)]
