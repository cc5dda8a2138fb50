"""The engine over records: offsets, rejected records, one run of many, many runs in little memory."""

from __future__ import annotations

import pytest

from streamproc.core.kept_runs import KeptRuns
from streamproc.policy import load_policy
from streamproc.replay.log import LogReplay
from tests.feeding import event_of
from tests.replay.records import record, stuck_record


@pytest.fixture
def log() -> LogReplay:
    return LogReplay(load_policy().engine(), event_bytes_max=10_000)


def test_a_decision_has_its_place_in_the_log(log: LogReplay) -> None:
    decisions = list(log.decide(stuck_record(offset, partition=3, at_ms=1_750_000_000_000) for offset in (7, 8, 11)))

    trigger = decisions[-1].trigger
    assert decisions[-1].severity == "halt"
    assert (trigger.topic, trigger.partition, trigger.offset) == ("t.turns", 3, 11)
    assert decisions[-1].at == "2025-06-15T15:06:40.000Z"
    assert log.turns == {"r": 3}


def test_the_same_run_in_two_partitions_is_two_runs(log: LogReplay) -> None:
    records = [stuck_record(0), stuck_record(1), stuck_record(0, partition=1), stuck_record(1, partition=1)]

    assert [decision.severity for decision in log.decide(records)] == ["warn", "warn"]


@pytest.mark.parametrize("bad", [
    record(None, offset=9), record(b"nonsense", offset=9), record(b"\xff\xfe", offset=9), record(b"[" * 5000, offset=9),
    record({"run_id": "r"}, offset=9), record({"run_id": "other", "node": "coder"}, offset=9),
    record({"run_id": "r", "node": "coder"}, offset=9, key=None),
    record({"run_id": "r", "node": "coder", "output": "x" * 20_000}, offset=9),
], ids=["tombstone", "not JSON", "not UTF-8", "nested", "no node", "another key", "no key", "too large"])  # fmt: skip
def test_records_that_the_worker_rejects_are_counted_and_change_nothing(log: LogReplay, bad) -> None:
    decisions = list(log.decide([stuck_record(0), stuck_record(1), bad, stuck_record(10)]))

    assert [decision.severity for decision in decisions] == ["warn", "halt"]
    assert log.refused == 1


def test_a_replay_can_be_restricted_to_one_run() -> None:
    log = LogReplay(load_policy().engine(), event_bytes_max=10_000, only="r")
    other = record({"run_id": "s", "node": "coder", "output": "Again."}, offset=0, key=b"s")

    decisions = list(log.decide([other, other, other, stuck_record(1), stuck_record(2)]))

    assert [decision.run_id for decision in decisions] == ["r"]
    assert log.turns == {"r": 2}


@pytest.mark.parametrize("at_ms", [-1, 10**15, 2**62])
def test_an_invalid_time_is_ignored(log: LogReplay, at_ms: int) -> None:
    decisions = list(log.decide(stuck_record(offset, at_ms=at_ms) for offset in range(3)))

    assert [decision.severity for decision in decisions] == ["warn", "halt"]
    assert decisions[-1].at is None


def test_states_survive_encoding() -> None:
    """A hundred runs keep their counts when at most two states stay objects."""
    runs: KeptRuns[bytes] = KeptRuns(load_policy().engine(), objects_max=2)
    for step in range(3):
        for number in range(100):
            event = event_of({"run_id": str(number), "node": "coder", "output": f"step {step}"})
            runs.step(b"%d" % number, event, None)

    assert {run.turns for number in range(100) if (run := runs.read(b"%d" % number)) is not None} == {3}
    assert runs.read(b"new") is None
    assert len(runs) == 100
