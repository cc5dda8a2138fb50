"""The parts of the notifier: deduplication, rate, committable offsets, messages."""

from __future__ import annotations

import json
import random

from streamproc.kafka.group import OffsetTracker
from streamproc.model.controls import ControlEvent
from streamproc.model.notification import Notice, Urgency, message_of, summary_of
from streamproc.notify import notifier
from streamproc.notify.delivery_queue import TokenBucket
from streamproc.notify.notifier import Dedup
from streamproc.notify.triggers import notice_of, trigger_of
from tests.notify.controls import control


def notice(number: int = 0, urgency: Urgency = Urgency.HIGH, **fields: object) -> Notice:
    event = control(number, **fields)
    trigger = trigger_of(event)
    assert trigger is not None
    return notice_of(event, trigger, urgency)


# Deduplication.


def test_a_repeated_control_event_notifies_once() -> None:
    memory = Dedup(600)

    assert memory.admit(control(1), Urgency.HIGH, 0) == 0
    assert memory.admit(control(1), Urgency.HIGH, 10_000) is None
    assert memory.same == 1


def test_a_series_notifies_once_per_window_with_the_number_held_back() -> None:
    memory = Dedup(600)

    assert memory.admit(control(1), Urgency.HIGH, 0) == 0
    assert [memory.admit(control(n), Urgency.HIGH, 599) for n in (2, 3, 4)] == [None] * 3
    assert memory.admit(control(5), Urgency.HIGH, 600) == 3
    assert memory.held_back == 3


def test_another_code_run_or_task_is_another_series() -> None:
    memory = Dedup(600)

    events = [control(1), control(2, code="STALL001"), control(3, run_id="r2"), control(4, task_id="T-8")]

    assert [memory.admit(one, Urgency.HIGH, 0) for one in events] == [0, 0, 0, 0]


def test_a_halt_is_no_repeat_of_the_warnings_before_it() -> None:
    # "95-100%: HARD STOP" after "90-94%: URGENT": the run may not go on, which no warning has said
    memory = Dedup(600)
    assert memory.admit(control(1, severity="warn"), Urgency.HIGH, 0) == 0
    assert memory.admit(control(2, severity="halt"), Urgency.HIGH, 1) == 0
    assert memory.admit(control(3, severity="halt"), Urgency.HIGH, 2) is None
    assert memory.admit(control(4, severity="warn"), Urgency.HIGH, 3) is None


def test_another_batch_is_another_series_and_the_same_one_is_not() -> None:
    memory = Dedup(600)
    batches = [
        control(n, code="TASK003", task_id=None, evidence={"kind": "board", "tasks": tasks})
        for n, tasks in enumerate((["A", "B"], ["C", "D"], ["A", "B"]))
    ]
    assert [memory.admit(one, Urgency.MEDIUM, 0) for one in batches] == [0, 0, None]


def test_a_more_urgent_event_notifies_at_once() -> None:
    memory = Dedup(600)
    levels = (Urgency.MEDIUM, Urgency.HIGH, Urgency.MEDIUM, Urgency.CRITICAL)

    assert [memory.admit(control(n), level, n) for n, level in enumerate(levels)] == [0, 0, None, 1]


def test_a_resumed_run_starts_a_new_series() -> None:
    memory = Dedup(600)
    assert memory.admit(control(1), Urgency.HIGH, 0) == 0
    assert memory.admit(control(2), Urgency.HIGH, 1) is None
    memory.reset("r1")
    assert memory.admit(control(3), Urgency.HIGH, 2) == 0


def test_one_fleet_command_to_many_runs_is_one_notification() -> None:
    memory = Dedup(600)
    stops = [
        control(n, run_id=f"r{n}", type="fleet.state", code="FLEET001", trigger={"event_id": "order-1"})
        for n in range(5)
    ]

    assert [memory.admit(stop, Urgency.CRITICAL, 0) for stop in stops] == [0, None, None, None, None]


def test_the_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(notifier, "IDS_MAX", 50)
    monkeypatch.setattr(notifier, "SUBJECTS_MAX", 50)
    memory = Dedup(600)

    for number in range(1_000):
        assert memory.admit(control(number, run_id=f"r{number}"), Urgency.HIGH, 0) == 0

    assert len(memory._ids) == len(memory._series) == 50


def test_a_shared_budget_notifies_once_and_again_when_it_gets_more_urgent() -> None:
    memory = Dedup(600)

    def level(number: int, account: str) -> ControlEvent:
        evidence = {"kind": "session_budget", "used": 71, "limit": 100, "account": account}
        return control(number, run_id=f"r{number}", code="BUDGET009", severity="warn", evidence=evidence)

    assert [memory.admit(level(n, "session:s1"), Urgency.MEDIUM, 0) for n in range(4)] == [0, None, None, None]
    assert memory.admit(level(5, "session:s2"), Urgency.MEDIUM, 0) == 0
    assert memory.admit(level(6, "session:s1"), Urgency.HIGH, 0) == 3


# Rate.


def test_a_bucket_starts_full_and_fills_with_time() -> None:
    bucket = TokenBucket(burst=2, per_s=0.5)

    for _ in range(2):
        assert bucket.wait_s(0) == 0
        bucket.take(0)

    assert bucket.wait_s(0) == 2
    assert bucket.wait_s(1.5) == 0.5
    assert bucket.wait_s(2) == 0
    bucket.take(2)
    assert bucket.wait_s(1_000) == 0
    bucket.take(1_000)
    bucket.take(1_000)
    assert bucket.wait_s(1_000) == 2  # tokens do not accumulate beyond the burst


# Committable offsets.


def test_offsets_are_committed_only_without_a_gap() -> None:
    offsets: OffsetTracker[str] = OffsetTracker()
    first, second, third = (offsets.begin("p", offset, 1) for offset in (5, 6, 7))

    second()
    assert offsets.ready() == {}
    first()
    assert offsets.ready() == {"p": 7}
    offsets.committed({"p": 7})
    assert offsets.ready() == {}
    third()
    assert offsets.ready() == {"p": 8}


def test_an_offset_stays_ready_until_it_was_committed() -> None:
    offsets: OffsetTracker[str] = OffsetTracker()
    for place in ("p", "q"):
        offsets.begin(place, 0, 1)()
    failed = offsets.ready()
    assert failed == offsets.ready() == {"p": 1, "q": 1}
    offsets.begin("p", 1, 1)()  # while the commit is under way
    offsets.committed(failed)
    assert offsets.ready() == {"p": 2}


def test_a_record_is_done_when_all_its_parts_are_settled() -> None:
    offsets: OffsetTracker[str] = OffsetTracker()
    settled = offsets.begin("p", 0, 2)
    settled()
    assert offsets.ready() == {}
    settled()
    assert offsets.ready() == {"p": 1}
    offsets.begin("p", 1, 0)
    assert offsets.ready() == {"p": 2}


def test_a_revoked_partition_commits_nothing() -> None:
    offsets: OffsetTracker[str] = OffsetTracker()
    settled = offsets.begin("p", 0, 1)
    offsets.keep(set())
    settled()
    assert offsets.ready() == {}


def test_memory_does_not_grow_behind_an_open_record() -> None:
    offsets: OffsetTracker[str] = OffsetTracker()
    first = offsets.begin("p", 0, 1)
    for offset in range(1, 10_000):
        offsets.begin("p", offset, 1)()
    assert sum(map(len, offsets._open.values())) <= 2
    first()
    assert offsets.ready() == {"p": 10_000}


def test_offsets_agree_with_a_naive_count() -> None:
    dice = random.Random(5)
    offsets: OffsetTracker[str] = OffsetTracker()
    waiting, done, reached = {}, set(), 0
    for offset in range(2_000):
        waiting[offset] = offsets.begin("p", offset, 1)
        for chosen in dice.sample(sorted(waiting), dice.randint(0, min(2, len(waiting)))):
            waiting.pop(chosen)()
            done.add(chosen)
        if dice.random() < 0.5:
            ready = offsets.ready()
            reached = ready.get("p", reached)
            offsets.committed(ready)
        first_open = min(waiting, default=offset + 1)
        assert reached <= first_open
        if first_open == offset + 1:
            assert offsets.ready().get("p", reached) == first_open
    for settled in waiting.values():
        settled()
    assert offsets.ready().get("p", reached) == 2_000


# Messages.


def test_a_message_has_one_field_per_line() -> None:
    message = message_of(notice(tenant="acme"), lost=3)

    assert message.title == "HIGH LOOP_DETECTED: coder"
    lines = message.body.splitlines()
    assert [line.partition(": ")[0] for line in lines[:6]] == [
        "type", "agent", "task_id", "evidence", "recommendation", "urgency",
    ]  # fmt: skip
    assert "run_id: r1" in lines
    assert "tenant: acme" in lines
    assert lines[-1] == "3 earlier notifications could not be delivered to this service"


def test_a_webhook_gets_the_same_as_json() -> None:
    body = json.loads(message_of(notice(), as_json=True, lost=3).body)

    assert body["notification"]["type"] == "LOOP_DETECTED"
    assert set(body["notification"]) == {"type", "agent", "task_id", "evidence", "recommendation", "urgency"}
    assert (body["run_id"], body["code"], body["control_id"], body["lost_before"]) == ("r1", "LOOP003", "c0", 3)


def test_a_summary_starts_with_the_most_urgent_and_counts_all() -> None:
    notices = [notice(n, Urgency.LOW, run_id=f"r{n}") for n in range(30)]
    notices.append(notice(99, Urgency.CRITICAL, code="STALL001", run_id="worst", message="x" * 900))

    message = summary_of(notices, lost=1)

    assert message.title == "CRITICAL: 31 notifications (1 STALL, 30 LOOP_DETECTED)"
    lines = message.body.splitlines()
    assert lines[0].startswith("CRITICAL STALL coder worst: STALL001")
    assert len(lines[0]) == 300
    assert "and 11 more" in lines
    assert len(lines) == 22
    body = json.loads(summary_of(notices, as_json=True).body)
    assert (body["count"], len(body["notifications"])) == (31, 20)
