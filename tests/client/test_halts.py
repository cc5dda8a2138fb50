"""The known halts, whatever the order in which the records of two topics arrive."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from streamproc.client import halts as module
from streamproc.client.halt_records import ControlNews, StatusNews, read_control_news, read_status_news
from streamproc.client.halts import Halts, control_of, halted_error
from streamproc.model.controls import ControlEvent, RunStatus
from tests.client.records import halt_event, resume_event, warning_event


def control(event: ControlEvent, at_ms: int = 1) -> ControlNews:
    return read_control_news(event.model_dump_json(exclude_none=True).encode(), at_ms)


def status(run_id: str, status: str, at_ms: int = 1, halt: ControlEvent | None = None) -> StatusNews:
    value = RunStatus.model_validate({"run_id": run_id, "status": status, "halt": halt})
    return read_status_news(value.model_dump_json().encode(), at_ms)


def test_a_halt_is_known_with_its_decision() -> None:
    halts = Halts()

    assert halts.control(control(halt_event("r1", "c1")))
    assert control_of(halts.runs["r1"]) == halt_event("r1", "c1")
    assert halted_error("r1", halts.runs["r1"]).control == halt_event("r1", "c1")
    assert halts.runs["r1"].code == "LOOP003"


def test_a_status_carries_the_same_decision() -> None:
    halts = Halts()

    assert halts.status(status("r1", "halted", halt=halt_event("r1", "c1")))
    assert control_of(halts.runs["r1"]) == halt_event("r1", "c1")


def test_a_known_halt_is_not_news() -> None:
    halts = Halts()

    assert halts.control(control(halt_event("r1"), 1))
    assert not halts.status(status("r1", "halted", 2, halt_event("r1")))


def test_a_status_without_a_reason_keeps_the_known_one() -> None:
    halts = Halts()
    halts.control(control(halt_event("r1", "c1"), 1))

    halts.status(status("r1", "halted", 2))
    halts.status(status("r1", "running", 1))

    assert control_of(halts.runs["r1"]) == halt_event("r1", "c1")


def test_a_warning_halts_nothing() -> None:
    halts = Halts()

    assert not halts.control(control(warning_event("r1", "c1")))
    assert not halts.runs


@pytest.mark.parametrize("release", [
    lambda halts: halts.control(control(resume_event("r1"), 2)), lambda halts: halts.status(status("r1", "running", 2)),
    lambda halts: halts.status(status("r1", "finished", 2)),
], ids=["resumed", "running", "finished"])  # fmt: skip
def test_a_run_is_released(release) -> None:
    halts = Halts()
    halts.control(control(halt_event("r1"), 1))

    release(halts)

    assert not halts.runs
    assert halts.control(control(halt_event("r1", "again"), 3))


def test_a_tombstone_is_no_news() -> None:
    assert read_status_news(None, 2) is None


def test_a_halted_run_that_finished_stays_halted() -> None:
    halts = Halts()

    halts.status(status("r1", "finished", 1, halt_event("r1")))

    assert "r1" in halts.runs


def test_a_status_from_before_the_halt_does_not_lift_it() -> None:
    halts = Halts()
    halts.control(control(halt_event("r1"), 5))

    halts.status(status("r1", "running", 4))
    halts.status(status("r1", "running", 5))

    assert "r1" in halts.runs


def test_a_halt_from_before_the_resume_does_not_return() -> None:
    halts = Halts()
    halts.status(status("r1", "running", 5))

    assert not halts.control(control(halt_event("r1"), 4))
    assert not halts.status(status("r1", "halted", 4, halt_event("r1")))
    assert not halts.runs


def test_a_resume_from_before_a_later_halt_does_not_lift_it() -> None:
    halts = Halts()
    halts.status(status("r1", "halted", 9, halt_event("r1", "third")))

    for event, at_ms in ((halt_event("r1", "first"), 5), (resume_event("r1"), 6), (halt_event("r1", "third"), 8)):
        halts.control(control(event, at_ms))

    assert control_of(halts.runs["r1"]) == halt_event("r1", "third")


@pytest.mark.parametrize("first", ["control", "status"])
def test_a_status_that_a_worker_sends_late_does_not_lift_the_halt(first: str) -> None:
    halts, halt = Halts(), halt_event("r1", trigger={"partition": 3, "offset": 20}, at="2026-01-01T00:00:20Z")
    if first == "control":
        halts.control(control(halt, 5))
    else:
        halts.status(followed("halted", 5, 21, halt))

    halts.status(followed("running", 9_000, 19))
    assert "r1" in halts.runs
    halts.status(followed("running", 9_001, 22))
    assert "r1" not in halts.runs
    halts.control(control(halt, 9_002))
    assert "r1" not in halts.runs


@pytest.mark.parametrize("order", [1, -1])
def test_a_status_of_the_same_id_in_another_partition_does_not_lift_the_halt(order: int) -> None:
    """Publishers that partition differently make two runs of one id, and so can anyone who may write turns."""
    halts, halt = Halts(), halt_event("r1", trigger={"partition": 3, "offset": 20}, at="2026-01-01T00:00:20Z")
    for news in [followed("halted", 5, 20, halt), followed("running", 9_000, 40, partition=4)][::order]:
        halts.status(news)
    assert "r1" in halts.runs

    halts.status(followed("running", 9_001, 41))
    assert "r1" not in halts.runs


def test_a_run_is_halted_while_any_partition_says_so() -> None:
    halts = Halts()
    for partition, offset in ((3, 20), (4, 5)):
        halt = halt_event("r1", trigger={"partition": partition, "offset": offset}, at="2026-01-01T00:00:20Z")
        halts.control(control(halt, 5))
    assert len(halts.of("r1")) == 2

    for partition in (4, 3):
        assert "r1" in halts.runs
        place = {"trigger": {"partition": partition, "offset": 30}, "at": "2026-01-01T00:00:30Z"}
        resumed = ControlEvent.model_validate(resume_event("r1").model_dump() | place)
        halts.control(control(resumed, 9_000))
    assert not halts.of("r1")


def followed(what: str, at_ms: int, offset: int, halt: ControlEvent | None = None, partition: int = 3) -> StatusNews:
    """A status that follows from an event of the log."""
    fields = {"run_id": "r1", "status": what, "halt": halt, "partition": partition, "offset": offset}
    value = RunStatus.model_validate(fields | {"at": f"2026-01-01T00:00:{offset}Z"})
    return read_status_news(value.model_dump_json().encode(), at_ms)


def test_a_control_event_is_new_once() -> None:
    halts = Halts()

    assert halts.is_new("c1")
    assert not halts.is_new("c1")
    assert halts.is_new("c2")


def test_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDS_MAX", 10)
    halts = Halts()

    assert all(halts.is_new(f"c{number}") for number in range(25))
    assert not halts.is_new("c24")
    assert halts.is_new("c0")


def test_halted_runs_are_bounded_and_the_oldest_is_evicted() -> None:
    halts = Halts(halted_max=3)

    for number in range(5):
        halts.control(control(halt_event(f"r{number}")))

    assert list(halts.runs) == ["r2", "r3", "r4"]
    assert halts.forgotten == 2


def test_for_the_oldest_halts_only_the_fact_is_kept() -> None:
    halts = Halts(detailed_max=2)

    for number in range(4):
        halts.control(control(halt_event(f"r{number}")))

    assert [control_of(halt) is not None for halt in halts.runs.values()] == [False, False, True, True]
    error = halted_error("r0", halts.runs["r0"])
    assert error.control is None
    assert "LOOP003" in str(error)
    assert "streamproc replay --run r0" in str(error)


def test_released_runs_are_bounded() -> None:
    halts = Halts(released_max=2)

    for number in range(10):
        halts.status(status(f"r{number}", "running", 5))

    # The release of the latest runs is still known, that of the first ones is not.
    assert not halts.control(control(halt_event("r9"), 4))
    assert halts.control(control(halt_event("r0"), 4))


@pytest.mark.parametrize("value", [b"", b"nonsense", b"[]", b'{"run_id": 1, "status": "halted"}', b"\xff\xfe"])
def test_an_unreadable_record_raises_value_error(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the kind is the contract; the texts are msgspec's
        read_status_news(value, 1)
    with pytest.raises(ValueError):  # noqa: PT011
        read_control_news(value, 1)


@pytest.mark.parametrize(("message", "known"), [('"m"', True), ("[1]", False)])
def test_a_halt_from_a_newer_version_still_halts(message: str, known: bool) -> None:
    value = f'{{"id":"c","type":"loop.ended","run_id":"r1","severity":"halt","code":"X1","message":{message},"a":1}}'
    halts = Halts()

    assert halts.control(read_control_news(value.encode(), 1))
    assert (halted_error("r1", halts.runs["r1"]).control is not None) == known


CHANGES = st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.sampled_from(["halt", "resume", "turn"])), max_size=25)


@given(CHANGES, st.data())
def test_any_interleaving_of_both_topics_ends_in_the_true_state(changes, data) -> None:
    """A worker writes control events, then statuses. Each topic keeps its order. A listener may read one topic long
    before the other, joins at any point (earlier statuses are compacted), and receives some control events twice."""
    controls: list[ControlNews] = []
    statuses: list[StatusNews] = []
    expected: dict[str, bool] = {}
    for number, (run_id, change) in enumerate(changes):
        at_ms = number * 2
        if change == "halt" and not expected.get(run_id):
            expected[run_id] = True
            controls.append(control(halt_event(run_id, f"c{number}"), at_ms))
        elif change == "resume" and expected.get(run_id):
            expected[run_id] = False
            controls.append(control(resume_event(run_id, f"c{number}"), at_ms))
        halt = halt_event(run_id, "s") if expected.get(run_id) else None
        statuses.append(status(run_id, "halted" if halt else "running", at_ms + data.draw(st.integers(0, 1)), halt))

    halts = Halts()
    joined_ms = data.draw(st.integers(0, 60))
    before = {news.run_id: news for news in statuses if news.at_ms <= joined_ms}
    live = [news for news in statuses if news.at_ms > joined_ms]
    events = [news for news in controls if news.at_ms >= joined_ms - data.draw(st.integers(0, 10))]
    for news in before.values():
        halts.status(news)
    while live or events:
        if events and (not live or data.draw(st.booleans())):
            event = events.pop(0)
            for _ in range(data.draw(st.integers(1, 2))):
                if halts.is_new(event.id):
                    halts.control(event)
        else:
            halts.status(live.pop(0))

    # A resume is also visible in the statuses; every run that has one is in the right state.
    assert set(halts.runs) == {run_id for run_id, halted in expected.items() if halted}
