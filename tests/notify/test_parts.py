"""The small parts: what was told already, how fast, how far the topic is done, how a message reads."""

from __future__ import annotations

import json
import random

from streamproc.model.controls import ControlEvent
from streamproc.model.notification import Notice, Urgency, message_of, summary_of
from streamproc.notify import dedup
from streamproc.notify.dedup import Dedup
from streamproc.notify.offset_tracker import Commits
from streamproc.notify.token_bucket import Bucket
from streamproc.notify.triggers import notice_of, trigger_of
from tests.notify.controls import control


def notice(number: int = 0, urgency: Urgency = Urgency.HIGH, **fields: object) -> Notice:
    told = control(number, **fields)
    trigger = trigger_of(told)
    assert trigger is not None
    return notice_of(told, trigger, urgency)


# What was told already.


def test_a_control_event_that_comes_again_is_told_once() -> None:
    memory = Dedup(600)

    assert memory.admit(control(1), Urgency.HIGH, 0) == 0
    assert memory.admit(control(1), Urgency.HIGH, 10_000) is None
    assert memory.same == 1


def test_of_a_series_the_first_is_told_and_the_next_window_says_how_many_there_were() -> None:
    memory = Dedup(600)

    assert memory.admit(control(1), Urgency.HIGH, 0) == 0
    assert [memory.admit(control(n), Urgency.HIGH, 599) for n in (2, 3, 4)] == [None] * 3
    assert memory.admit(control(5), Urgency.HIGH, 600) == 3
    assert memory.held_back == 3


def test_another_code_run_or_task_is_another_series() -> None:
    memory = Dedup(600)

    told = [control(1), control(2, code="STALL001"), control(3, run_id="r2"), control(4, task_id="T-8")]

    assert [memory.admit(one, Urgency.HIGH, 0) for one in told] == [0, 0, 0, 0]


def test_what_gets_more_urgent_is_told_at_once() -> None:
    memory = Dedup(600)
    levels = (Urgency.MEDIUM, Urgency.HIGH, Urgency.MEDIUM, Urgency.CRITICAL)

    assert [memory.admit(control(n), level, n) for n, level in enumerate(levels)] == [0, 0, None, 1]


def test_a_run_that_somebody_looked_after_begins_again() -> None:
    memory = Dedup(600)
    assert memory.admit(control(1), Urgency.HIGH, 0) == 0
    assert memory.admit(control(2), Urgency.HIGH, 1) is None
    memory.begin_again("r1")
    assert memory.admit(control(3), Urgency.HIGH, 2) == 0


def test_one_order_to_many_runs_is_one_notification() -> None:
    memory = Dedup(600)
    stops = [
        control(n, run_id=f"r{n}", type="fleet.state", code="FLEET001", trigger={"event_id": "order-1"})
        for n in range(5)
    ]

    assert [memory.admit(stop, Urgency.CRITICAL, 0) for stop in stops] == [0, None, None, None, None]


def test_the_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(dedup, "IDS_MAX", 50)
    monkeypatch.setattr(dedup, "RUNS_MAX", 50)
    memory = Dedup(600)

    for number in range(1_000):
        assert memory.admit(control(number, run_id=f"r{number}"), Urgency.HIGH, 0) == 0

    assert len(memory._ids) == len(memory._series) == 50


def test_a_budget_that_many_runs_share_is_told_once_and_again_when_it_gets_worse() -> None:
    memory = Dedup(600)

    def level(number: int, account: str) -> ControlEvent:
        evidence = {"kind": "session_budget", "used": 71, "limit": 100, "account": account}
        return control(number, run_id=f"r{number}", code="BUDGET009", severity="warn", evidence=evidence)

    assert [memory.admit(level(n, "session:s1"), Urgency.MEDIUM, 0) for n in range(4)] == [0, None, None, None]
    assert memory.admit(level(5, "session:s2"), Urgency.MEDIUM, 0) == 0
    assert memory.admit(level(6, "session:s1"), Urgency.HIGH, 0) == 3


# How fast.


def test_a_bucket_starts_full_and_fills_with_time() -> None:
    bucket = Bucket(burst=2, per_s=0.5)

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
    assert bucket.wait_s(1_000) == 2  # no more than the burst was saved up


# How far the topic is done.


def test_only_what_is_settled_without_a_gap_is_committed() -> None:
    commits: Commits[str] = Commits()
    first, second, third = (commits.begin("p", offset, 1) for offset in (5, 6, 7))

    second()
    assert commits.ready() == {}
    first()
    assert commits.ready() == {"p": 7}
    assert commits.ready() == {}
    third()
    assert commits.ready() == {"p": 8}


def test_a_record_is_done_when_all_its_parts_are() -> None:
    commits: Commits[str] = Commits()
    settled = commits.begin("p", 0, 2)
    settled()
    assert commits.ready() == {}
    settled()
    assert commits.ready() == {"p": 1}
    commits.begin("p", 1, 0)
    assert commits.ready() == {"p": 2}


def test_a_partition_that_went_away_commits_nothing_any_more() -> None:
    commits: Commits[str] = Commits()
    settled = commits.begin("p", 0, 1)
    commits.keep(set())
    settled()
    assert commits.ready() == {}


def test_behind_one_that_is_open_the_memory_does_not_grow() -> None:
    commits: Commits[str] = Commits()
    first = commits.begin("p", 0, 1)
    for offset in range(1, 10_000):
        commits.begin("p", offset, 1)()
    assert commits.unsettled <= 2
    first()
    assert commits.ready() == {"p": 10_000}


def test_commits_agree_with_a_naive_count() -> None:
    dice = random.Random(5)
    commits: Commits[str] = Commits()
    waiting, done, reached = {}, set(), 0
    for offset in range(2_000):
        waiting[offset] = commits.begin("p", offset, 1)
        for chosen in dice.sample(sorted(waiting), dice.randint(0, min(2, len(waiting)))):
            waiting.pop(chosen)()
            done.add(chosen)
        reached = commits.ready().get("p", reached)
        first_open = min(waiting, default=offset + 1)
        assert reached <= first_open
        if first_open == offset + 1:
            assert reached == first_open
    for settled in waiting.values():
        settled()
    assert commits.ready().get("p", reached) == 2_000


# How it reads.


def test_a_message_has_the_fields_one_a_line() -> None:
    message = message_of(notice(tenant="acme"), lost=3)

    assert message.title == "HIGH LOOP_DETECTED: coder"
    lines = message.body.splitlines()
    assert [line.partition(": ")[0] for line in lines[:6]] == [
        "type", "agent", "task_id", "evidence", "recommendation", "urgency",
    ]  # fmt: skip
    assert "run_id: r1" in lines
    assert "tenant: acme" in lines
    assert lines[-1] == "3 earlier notification(s) could not be delivered to this service"


def test_a_webhook_gets_the_same_as_json() -> None:
    body = json.loads(message_of(notice(), as_json=True, lost=3).body)

    assert body["notification"]["type"] == "LOOP_DETECTED"
    assert set(body["notification"]) == {"type", "agent", "task_id", "evidence", "recommendation", "urgency"}
    assert (body["run_id"], body["code"], body["control_id"], body["lost_before"]) == ("r1", "LOOP003", "c0", 3)


def test_a_summary_has_the_most_urgent_first_and_counts_all() -> None:
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
