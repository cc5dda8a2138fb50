"""What a worker counts for its metrics, over slices of records through the real engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamproc.metrics.definitions import DEAD_LETTER_REASONS, OTHER
from streamproc.model import wire
from streamproc.model.controls import ControlEvent
from streamproc.policy import load_policy
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.counts import WorkerCounts
from streamproc.worker.metrics import WorkerMetrics, _events
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.feeding import WrappedEngine
from tests.worker.records import TOPIC, Record, records_of
from tests.worker.running import event_record, honest_run, looping_run

LIMITS: dict[str, Any] = {"dead_letter_bytes": 1024, "version": "1.2.3"}


def processor(counts: WorkerCounts, engine: Any = None, **options: Any) -> TurnProcessor:
    engine = engine or load_policy("standard").engine()
    return TurnProcessor(engine, TOPIC, event_bytes_max=4096, counts=counts, **LIMITS, **options)


def runs(partition: int = 0) -> Runs:
    return Runs(partition, RunLimits())


def begun(run_id: str, **fields: Any) -> tuple[bytes, bytes]:
    return event_record(wire.RunStarted(w=1, run_id=run_id, event_id=f"{run_id}/begun", **fields))


def ended(run_id: str) -> tuple[bytes, bytes]:
    return event_record(wire.RunFinished(w=1, run_id=run_id, event_id=f"{run_id}/ended"))


def shown(counts: WorkerCounts, *partitions: int) -> dict[tuple[str, ...], float | Any]:
    return {one.labels: one.value for one in _events(counts, partitions) if one.labels}


def test_events_are_counted_by_partition_and_type() -> None:
    counts = WorkerCounts()
    worker, mine = processor(counts), runs(3)
    log = records_of(
        [begun("r"), *honest_run("r", 5), ended("r"), (b"r", b"nonsense"), (b"s", honest_run("r", 1)[0][1])]
    )
    worker.accept(mine, log)
    worker.accept(runs(7), records_of(honest_run("q", 2)))
    worker.accept(mine, log[:2])  # read again
    assert shown(counts, 3, 7, 9) == {
        ("3", "run.started"): 2, ("3", "turn"): 6, ("3", "run.finished"): 1, ("3", "invalid"): 2, ("7", "turn"): 2,
        ("9", "turn"): 0,
    }  # fmt: skip
    assert counts.step.cumulative()[-1] == ("+Inf", 13)
    assert counts.step.total > 0


def test_decisions_and_ends_are_counted_by_workflow() -> None:
    counts = WorkerCounts()
    stop = event_record(wire.OperatorStop(w=1, run_id="stuck", event_id="stop", by="ada"))
    log = [begun("stuck", workflow="nightly"), *looping_run("stuck", 8), stop, ended("stuck"), ended("fine")]
    processor(counts).accept(runs(), records_of(log))
    assert counts.decisions == {
        ("LOOP001", "warn", "nightly"): 1, ("LOOP001", "halt", "nightly"): 1, ("OPERATOR001", "halt", "nightly"): 1
    }  # fmt: skip
    assert counts.ended["halted", "nightly"] == 1
    assert counts.ended["finished", "nightly"] == 0


def test_a_run_out_of_time_has_timed_out() -> None:
    counts = WorkerCounts()
    common = {"run_id": "r", "code": "BUDGET006", "severity": "halt", "message": "", "workflow": None}
    counts.halted(ControlEvent(id="1", type="run.timed_out", **common))
    counts.halted(ControlEvent(id="2", type="loop.halted", terminal_status="timed_out", **common))
    counts.halted(ControlEvent(id="3", type="loop.halted", **common))
    assert counts.ended == {("timed_out", ""): 2, ("halted", ""): 1}


def test_more_workflows_than_fifty_are_one() -> None:
    counts = WorkerCounts()
    log = [
        record for number in range(80) for record in (begun(f"r{number}", workflow=f"w{number}"), ended(f"r{number}"))
    ]
    processor(counts).accept(runs(), records_of(log))
    assert len(counts.ended) == 51
    assert counts.ended["finished", OTHER] == 30


def fails(apply: Any, *arguments: Any) -> Any:
    apply(*arguments)
    raise RuntimeError("a bug")


def refused(counts: WorkerCounts, *log: tuple[bytes | None, bytes | None], **options: Any) -> None:
    outgoing = processor(counts, **options).accept(runs(), records_of(log))
    assert sum(record.topic == "dead-letter" for record in outgoing) == 1


def dead_letters(reason: str) -> WorkerCounts:
    """Count one dead letter of a reason."""
    counts = WorkerCounts()
    turn = honest_run("r", 1)[0]
    owned = [event_record(wire.Turn(w=1, run_id="r", node="n", event_id=token, token=token)) for token in "ab"]
    match reason:
        case "unreadable":
            refused(counts, (b"r", b"nonsense"))
        case "key":
            refused(counts, (b"other", turn[1]))
        case "too_large":
            refused(counts, (b"r", b" " * 5000))
        case "token":
            refused(counts, *owned)
        case "new_runs":
            refused(counts, *[honest_run(name, 1)[0] for name in "ab"], new_runs_max=1)
        case "engine":
            refused(counts, turn, engine=WrappedEngine(load_policy("standard").engine(), fails))
        case "poison":
            processor(counts).refuse(0, Record(1, *turn))
        case "statement":
            AccountProcessor("spend", counts=counts, **LIMITS).accept(
                AccountPartition(0, lambda: 0), records_of([(b"k", b"nonsense")])
            )
    return counts


# The others need a signature or a fleet: tests/metrics/test_on_kafka.py, the tests marked `security`.
ELSEWHERE = {"command", "outdated", "signature"}


@pytest.mark.parametrize("reason", sorted({*DEAD_LETTER_REASONS} - ELSEWHERE))
def test_a_dead_letter_is_counted_by_its_reason(reason: str) -> None:
    assert dead_letters(reason).dead_letters == {reason: 1}


def test_delays_add_up_and_are_none_for_an_imported_log() -> None:
    counts = WorkerCounts()
    made = counts.times(1_000)
    times = made._replace(log_ms=round(made.made_s * 1000))
    counts.acknowledged([times, None], ahead_s=2.0)
    assert counts.delay.cumulative()[-1] == ("+Inf", 1)
    assert counts.delay.total == pytest.approx(counts.wait.total + counts.publishing.total, abs=0.01)
    assert counts.wait.total == pytest.approx(2.0, abs=0.01)
    assert counts.times(None) is None
    assert WorkerCounts(live=False).times(1_000) is None


async def test_a_worker_is_not_ready_before_its_broker_and_after_its_stop() -> None:
    stop = asyncio.Event()
    metrics = WorkerMetrics(stop)
    assert metrics.missing() == ["waiting for the broker and its topics"]
    assert not list(metrics.read())
    stop.set()
    assert metrics.missing() == ["stopping"]
