"""One slice of records through the real engine: what is published, refused and skipped."""

from __future__ import annotations

import logging
from typing import NoReturn

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from streamproc.errors import Problem
from streamproc.kafka.log_limit import LineRate, LogLimit
from streamproc.model import wire
from streamproc.model.controls import ControlEvent, ControlEvidence, RunStatus, read_control
from streamproc.model.log_lines import named_values
from streamproc.policy import load_policy
from streamproc.worker import decision_log
from streamproc.worker.limits import CONTROL_BYTES_MAX, HALT_LINES_A_SECOND
from streamproc.worker.publishing import control_record, dead_letter_record
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.feeding import WrappedEngine
from tests.worker.records import NOON_MS, TOPIC, Record, records_of
from tests.worker.running import event_record, expected_ids, honest_run, interleaved, looping_run, said

BYTES_MAX = 4096


def processor(policy: str = "standard") -> TurnProcessor:
    engine = load_policy(policy).engine()
    return TurnProcessor(engine, TOPIC, event_bytes_max=BYTES_MAX, dead_letter_bytes=1024, version="1.2.3")


def runs() -> Runs:
    return Runs(0, RunLimits())


def controls(outgoing) -> list:
    return [read_control(record.value) for record in outgoing if record.topic == "control"]


def statuses(outgoing) -> list[RunStatus]:
    return [RunStatus.model_validate_json(record.value) for record in outgoing if record.topic == "runs"]


@pytest.fixture(autouse=True)
def no_lines_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are limited in number: no other test of this second has used them up."""
    monkeypatch.setattr(decision_log, "limited", LogLimit(decision_log.log))
    monkeypatch.setattr(decision_log, "halt_lines", LineRate(decision_log.log, HALT_LINES_A_SECOND))


def test_decisions_name_their_place_in_the_log() -> None:
    outgoing = processor().accept(runs(), records_of(looping_run("r"), first=40))

    warning, halt = controls(outgoing)
    assert (warning.severity, halt.severity) == ("warn", "halt")
    assert (halt.trigger.topic, halt.trigger.partition, halt.trigger.offset) == ("streamproc.turns", 0, 42)
    assert halt.trigger.turn == 2


def test_log_time_is_the_timestamp_of_the_record() -> None:
    outgoing = processor().accept(runs(), records_of(looping_run("r")))
    assert controls(outgoing)[0].at == "2023-11-14T22:13:20.001Z"


@pytest.mark.parametrize("timestamp", [-1, 253_402_300_800_000, 2**62])
def test_a_timestamp_outside_the_calendar_counts_as_none(timestamp: int) -> None:
    mine = runs()
    outgoing = processor().accept(mine, [Record(n, *pair, timestamp) for n, pair in enumerate(looping_run("r"))])
    assert controls(outgoing)[0].at is None


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Unread:
    """Headers that nothing may read."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("the headers of a turn without a decision were read")


def test_a_decision_and_the_status_of_its_halt_name_the_span_of_the_turn() -> None:
    plain = records_of(looping_run("r"))
    traced = [record._replace(headers=(("traceparent", TRACE.encode()),)) for record in plain]
    worker = processor()
    before, after = processor().accept(runs(), plain), worker.accept(runs(), traced)
    assert [record.value for record in after] == [record.value for record in before]  # not part of what is decided
    found = [(record.topic, dict(record.headers)) for record in after]
    assert [headers["ce_traceparent"] for topic, headers in found if topic == "control"] == [TRACE.encode()] * 2
    assert [headers for topic, headers in found if topic == "runs"] == [{"traceparent": TRACE.encode()}]
    assert not worker._traceparents  # kept for one slice only
    assert not any("traceparent" in name for record in before for name, _ in record.headers)


def test_only_a_turn_that_is_decided_on_has_its_headers_read() -> None:
    mine, worker = runs(), processor()
    records = records_of(looping_run("r"))
    worker.accept(mine, records[:1])
    begins = event_record(wire.RunStarted(w=1, run_id="h", event_id="b"))
    unread = [record._replace(headers=Unread()) for record in records_of([begins, *honest_run("h", 40)], first=100)]
    assert not controls(worker.accept(mine, unread))
    with pytest.raises(AssertionError):
        worker.accept(mine, [record._replace(headers=Unread()) for record in records[1:]])


@pytest.mark.parametrize(
    "value", [b"", None, TRACE.upper().encode(), b"\xff" * 55, TRACE.encode() + b"-1", b"0" * 10**6]
)
def test_a_malformed_traceparent_is_ignored(value: bytes | None) -> None:
    records = [record._replace(headers=(("traceparent", value),)) for record in records_of(looping_run("r"))]
    outgoing = processor().accept(runs(), records)
    assert len(controls(outgoing)) == 2
    assert not any("traceparent" in name for record in outgoing for name, _ in record.headers)


PAIRS = interleaved([looping_run("a", 8), honest_run("b", 8), looping_run("c", 5)])


@settings(max_examples=50)  # each replays a log several times
@given(cuts=st.lists(st.integers(0, len(PAIRS)), max_size=8), again=st.lists(st.integers(0, len(PAIRS)), max_size=8))
def test_slices_and_redelivery_change_nothing(cuts: list[int], again: list[int]) -> None:
    """However the log is cut, and from wherever it is read again, each decision is made once."""
    log = records_of(PAIRS)
    mine, worker = runs(), processor()
    outgoing = []
    position = 0
    for end in [*sorted(cuts), len(log)]:
        outgoing += worker.accept(mine, log[position:end])
        position = end
        for start in again:
            if start < position:
                outgoing += worker.accept(mine, log[start:position])
        if end % 2:
            mine.stored(mine.take(), None)

    assert sorted(control.id for control in controls(outgoing)) == sorted(expected_ids(PAIRS))


def test_a_status_is_published_at_the_start_at_each_decision_and_at_the_end() -> None:
    mine, worker = runs(), processor()
    [begins] = statuses(worker.accept(mine, records_of(looping_run("r", 1))))
    assert begins.status == "running"
    assert not statuses(worker.accept(mine, records_of(honest_run("r", 1), first=1)))

    rest = records_of([*looping_run("s", 6), event_record(wire.RunFinished(w=1, run_id="r", event_id="e"))], first=2)
    by_run = {status.run_id: status for status in statuses(worker.accept(mine, rest))}

    assert len(by_run) == len(statuses(worker.accept(runs(), rest)))
    assert (by_run["s"].status, by_run["r"].status) == ("halted", "finished")


def test_a_run_keeps_the_decision_that_halted_it_over_a_restart() -> None:
    before, worker = runs(), processor()
    halt = controls(worker.accept(before, records_of(looping_run("r", 3))))[-1]
    after = runs()
    for place, (key, raw) in enumerate(before.take()):
        after.restore(key, raw, place)

    [status] = statuses(
        processor().accept(after, records_of([event_record(wire.RunFinished(w=1, run_id="r", event_id="e"))], first=9))
    )

    assert status.halt.id == halt.id


def test_a_worker_that_finds_a_record_applied_states_the_status_once_more() -> None:
    mine, records = runs(), records_of(looping_run("r"))
    processor().accept(mine, records)
    mine.stored(mine.take(), 0)
    mine.active.clear()

    again = processor().accept(mine, records)  # another worker may have stepped the first two and published `running`

    assert [record.topic for record in again] == ["runs"]
    [status] = statuses(again)
    assert (status.status, status.halt.code, status.offset) == ("halted", "LOOP001", len(records) - 1)


def test_a_refused_record_is_kept_as_it_was_with_the_reason() -> None:
    key, value = looping_run("r", 1)[0]
    worker = processor()
    mine = runs()
    outgoing = worker.accept(mine, [Record(7, b"other", value), Record(8, b"r" * 50, b"\xff"), Record(9, key, value)])

    wrong_key, unreadable = [record for record in outgoing if record.topic == "dead-letter"]
    headers = dict(wrong_key.headers)
    assert (wrong_key.key, wrong_key.value) == (b"other", value)
    assert headers["field"] == b"key"
    assert headers["remedy"] == b"set the record key to run_id"
    assert headers["source.offset"] == b"7"
    assert headers["source.timestamp"] == str(NOON_MS).encode()
    assert headers["detector.version"] == b"1.2.3"
    assert unreadable.value == b"\xff"
    assert worker.counts.refused == 2
    assert list(mine.active) == [b"r"], "a refused record makes no run"


def test_a_value_too_large_for_a_dead_letter_is_truncated() -> None:
    value = looping_run("r", 1)[0][1] + b" " * BYTES_MAX
    [record] = processor().accept(runs(), [Record(0, b"r", value)])
    assert len(record.value) + len(record.key) == 1024
    assert value.startswith(record.value)
    assert dict(record.headers)["truncated.from_bytes"] == str(len(value)).encode()


def test_a_key_too_large_for_a_dead_letter_is_truncated() -> None:
    record = dead_letter_record(
        Record(0, b"k" * 5000, b"v"),
        [Problem("event", "too large", "send less")],
        version="1",
        bytes_max=1000,
    )
    assert len(record.key) + len(record.value) <= 1000


def test_a_failing_engine_leaves_the_run_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """The run is put together again from what is stored, and what came since."""
    worker = processor()
    honest_step = worker._engine.step
    fails_on = {"bad-1", "bad-2"}

    def step(state, event, at_ms, position=-1):
        outcome = honest_step(state, event, at_ms, position)
        if event.event_id in fails_on:
            raise ZeroDivisionError("a bug")
        return outcome

    worker._engine = WrappedEngine(worker._engine, step)
    mine = runs()
    news = [
        event_record(wire.Turn(w=1, run_id="r", node="n", event_id=name, output=said(name)))
        for name in sorted(fails_on)
    ]
    loop = looping_run("r")
    first = worker.accept(mine, records_of([loop[0], news[0]]))
    mine.stored(mine.take(), None)
    with caplog.at_level(logging.ERROR):
        second = worker.accept(mine, records_of([loop[1], news[1], loop[2]], first=2))

    outgoing = [*first, *second]
    assert {control.id for control in controls(outgoing)} == expected_ids(loop)
    refused = [record for record in outgoing if record.topic == "dead-letter"]
    assert [record.value for record in refused] == [value for _, value in news]
    assert b"ZeroDivisionError: a bug" in dict(refused[0].headers)["reason"]
    assert "a bug" in caplog.text
    assert mine.state(b"r").turns == 3
    again = worker.accept(mine, records_of([loop[1], news[1], loop[2]], first=2))
    assert [record.topic for record in again] == ["runs"], "it counts as applied"


def test_a_decision_with_enormous_labels_still_arrives() -> None:
    decision = ControlEvent(
        id="1", type="loop.halted", run_id="r", code="LOOP001", severity="halt", message="m" * CONTROL_BYTES_MAX,
        labels={"a": "b" * CONTROL_BYTES_MAX},
        evidence=ControlEvidence(kind="k", failing_tests=["t" * CONTROL_BYTES_MAX]),
    )  # fmt: skip
    record = control_record(b"r", decision)
    assert len(record.value) < CONTROL_BYTES_MAX
    assert read_control(record.value).code == "LOOP001"


def test_each_halt_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        halt = controls(processor().accept(runs(), records_of(looping_run("r"))))[-1]
    [line] = [record.message for record in caplog.records if record.message.startswith("halt ")]
    assert f"run=r code={halt.code} turn=2 partition=0 reason={halt.halt_reason} node=coder id={halt.id}" in line


def test_layers_of_a_deliberation_are_logged_as_warnings_with_their_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002: "All layer triggers logged at WARNING level"."""
    caplog.set_level(logging.INFO)
    usage = wire.Usage(cost_usd_micro=450_000)
    spent = [
        event_record(wire.Turn(w=1, run_id=f"r{n}", node="a", event_id=f"{n}.{m}", output=said(f"{m}"), usage=usage))
        for n in range(20)
        for m in range(3)
    ]
    decided = controls(processor("deliberation").accept(runs(), records_of(spent)))
    assert {(one.code, one.severity) for one in decided} == {("BUDGET007", "warn"), ("BUDGET007", "halt")}
    lines = [one for one in caplog.records if "code=BUDGET007" in one.getMessage()]
    assert {one.levelname for one in lines} == {"WARNING"}
    assert len(lines) == 10, "five of each severity, then one in 30 s"
    assert named_values(lines[0]).items() >= {"run": "r0", "code": "BUDGET007", "turn": 1, "partition": 0}.items()


def test_ten_thousand_nodes_in_one_run_stay_within_four_kibibytes() -> None:
    mine, worker = runs(), processor()
    crowd = [
        event_record(wire.Turn(w=1, run_id="r", node=f"node-{n}", event_id=f"e{n}", output=said(f"{n}")))
        for n in range(10_000)
    ]
    worker.accept(mine, records_of(crowd))
    [(_, raw)] = mine.take()
    assert raw is not None
    assert len(raw) <= 4096


def test_raw_turns_are_read_too() -> None:
    raw = [
        (b"r", msgspec.json.encode({"run_id": "r", "node": "n", "output": "again", "event_id": str(n)}))
        for n in range(3)
    ]
    assert controls(processor().accept(runs(), records_of(raw)))[-1].halts


def test_a_run_that_is_halted_at_its_start_stays_halted_when_it_is_started_again() -> None:
    started = wire.RunStarted(w=1, run_id="r", event_id="1", graph={"edges": [["a", "b"], ["b", "a"]]})
    again = wire.RunStarted(w=1, run_id="r", event_id="2", graph={"edges": [["a", "b"], ["b", "a"]]})
    mine, worker = runs(), processor()

    outgoing = worker.accept(mine, records_of([event_record(started)]))
    outgoing_again = worker.accept(mine, records_of([event_record(again)], first=1))

    [halt] = controls(outgoing)
    assert (halt.code, halt.severity) == ("GRAPH001", "halt")
    assert controls(outgoing_again) == []
    for [status] in (statuses(outgoing), statuses(outgoing_again)):
        assert status.status == "halted"
        assert status.halt.id == halt.id


def test_a_run_id_that_is_used_again_has_the_halt_of_its_new_run() -> None:
    log = [
        *looping_run("r", 2),
        event_record(wire.RunFinished(w=1, run_id="r", event_id="end")),
        event_record(wire.RunStarted(w=1, run_id="r", event_id="new", graph={"edges": [["a", "a"]]})),
    ]

    [*_, status] = statuses(processor().accept(runs(), records_of(log)))

    assert status.halt.code == "GRAPH001"


def test_the_log_line_of_a_halt_can_wait_until_its_decision_has_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one, later = processor(), []
    one.soon = lambda work, *arguments: later.append((work, arguments))
    assert len(controls(one.accept(runs(), records_of(looping_run("r"))))) == 2
    assert "halt run=r" not in caplog.text
    for work, arguments in later:
        work(*arguments)
    assert caplog.text.count("halt run=r ") == 1
