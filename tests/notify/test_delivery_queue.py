"""Delivery through real Apprise to a real web server: down, slow, rejecting, and rate-limited."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from streamproc.notify import delivery_queue
from streamproc.notify.delivery_queue import DeliveryQueue
from streamproc.notify.notification_config import Destination, NotificationConfig
from streamproc.notify.notifier import Notifier
from streamproc.notify.service import Service
from tests.notify.controls import control
from tests.notify.receiver import Receiver
from tests.waiting import until

FAST = {"burst": 1_000, "per_minute": 600}


class Settled:
    """Counts settled control events."""

    def __init__(self) -> None:
        self.ids: Counter[str] = Counter()

    def of(self, name: str) -> Any:
        return lambda: self.ids.update([name])


@asynccontextmanager
async def notifying(
    *destinations: Destination, clock: Callable[[], float] = time.monotonic, **options: Any
) -> AsyncIterator[tuple[Notifier, list[DeliveryQueue]]]:
    """Run a notifier."""
    config = NotificationConfig.model_validate({"rate": FAST, "retry_first_s": 0.02} | options)
    queues = [
        (one, DeliveryQueue(Service(one, number), config, as_json=one.as_json, clock=clock))
        for number, one in enumerate(destinations, 1)
    ]
    notifier = Notifier(config, queues)
    task = asyncio.create_task(notifier.run())
    try:
        yield notifier, [queue for _, queue in queues]
    finally:
        task.cancel()
        await asyncio.wait([task])


def to(url: str, **options: Any) -> Destination:
    return Destination(url=SecretStr(url), **options)


def feed(notifier: Notifier, settled: Settled, numbers: range, **fields: Any) -> None:
    for number in numbers:
        notifier.add(control(number, run_id=f"r{number}", **fields), settled.of(f"c{number}"))


async def test_a_webhook_gets_the_notification_as_json(receiver: Receiver) -> None:
    settled = Settled()
    async with notifying(to(receiver.json_url)) as (notifier, _):
        feed(notifier, settled, range(1))
        await until(lambda: settled.ids["c0"])

    [(path, post)] = receiver.posts
    assert path == "/hook"
    assert (post["title"], post["type"]) == ("HIGH LOOP_DETECTED: coder", "failure")
    sent = json.loads(post["message"])["notification"]
    assert (sent["type"], sent["agent"], sent["task_id"], sent["urgency"]) == ("LOOP_DETECTED", "coder", "T-7", "HIGH")


async def test_ntfy_gets_the_notification_as_text(receiver: Receiver) -> None:
    settled = Settled()
    async with notifying(to(receiver.ntfy_url)) as (notifier, _):
        feed(notifier, settled, range(1))
        await until(lambda: settled.ids["c0"])

    [(_, post)] = receiver.posts
    assert post["topic"] == "agents"
    assert post["title"] == "HIGH LOOP_DETECTED: coder"
    assert "\nurgency: HIGH\n" in post["message"]


async def test_a_recovered_server_gets_all_notifications(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.stop()
    settled = Settled()
    with caplog.at_level(logging.INFO, "streamproc"):
        async with notifying(to(receiver.json_url)) as (notifier, [queue]):
            feed(notifier, settled, range(5))
            await until(lambda: queue.failed >= 3, what="three tries")
            assert not settled.ids
            receiver.start()
            await until(lambda: settled.ids.total() == 5)

    assert sorted(notice["run_id"] for notice in receiver.notices()) == [f"r{n}" for n in range(5)]
    assert (queue.sent, queue.lost, queue.waiting) == (5, 0, 0)
    logged = [record.message for record in caplog.records if "#1" in record.message]
    assert logged == [
        "json #1 rejects notifications (no connection, or no answer in time); retrying",
        "json #1 accepts notifications again",
    ]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_rejected_notification_is_retried(receiver: Receiver, status: int) -> None:
    receiver.statuses.extend([status] * 3)
    settled = Settled()
    async with notifying(to(receiver.json_url)) as (notifier, [queue]):
        feed(notifier, settled, range(1))
        await until(lambda: settled.ids["c0"])

    assert (receiver.refused, len(receiver.posts), queue.failed) == (3, 1, 3)


async def test_a_server_that_answers_too_late_gets_the_notification_again(receiver: Receiver) -> None:
    receiver.open.clear()
    settled = Settled()
    async with notifying(to(f"{receiver.json_url}?rto=0.2")) as (notifier, [queue]):
        feed(notifier, settled, range(1))
        await until(lambda: queue.failed >= 1, what="the first try to fail")
        receiver.open.set()
        await until(lambda: settled.ids["c0"])

    assert len(receiver.posts) >= 2  # at least once: the first was received, but not acknowledged
    assert len({notice["control_id"] for notice in receiver.notices()}) == 1


async def test_a_slow_destination_does_not_delay_others(receiver: Receiver) -> None:
    slow = Receiver().start()
    slow.open.clear()
    settled = Settled()
    try:
        async with notifying(to(slow.json_url), to(receiver.json_url)) as (notifier, _):
            feed(notifier, settled, range(20))
            await until(lambda: len(receiver.notices()) == 20)
            assert not settled.ids, "a notification is settled when all destinations have it"
            slow.open.set()
            await until(lambda: settled.ids.total() == 20)
    finally:
        slow.stop()

    assert {notice["run_id"] for notice in slow.notices()} == {f"r{n}" for n in range(20)}


async def test_notifications_beyond_the_rate_are_sent_in_one_summary(receiver: Receiver) -> None:
    settled = Settled()
    async with notifying(to(receiver.json_url), rate={"burst": 2, "per_minute": 600}) as (notifier, [queue]):
        feed(notifier, settled, range(50))
        await until(lambda: settled.ids.total() == 50)

    single, other, summary, *more = [json.loads(post["message"]) for _, post in receiver.posts]
    assert not more
    assert (single["run_id"], other["run_id"]) == ("r0", "r1")
    assert (summary["count"], len(summary["notifications"])) == (48, 20)
    assert (queue.sent, queue.messages, queue.lost) == (50, 3, 0)


async def test_lost_notifications_are_counted_logged_and_reported(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.stop()
    settled, now_s = Settled(), [0.0]
    async with notifying(to(receiver.json_url), clock=lambda: now_s[0]) as (notifier, [queue]):
        feed(notifier, settled, range(3))
        await until(lambda: queue.failed >= 4, what="each to be tried")
        assert queue.lost == 0
        now_s[0] = 3_601.0
        await until(lambda: queue.lost == 3, what="three notifications to be given up")
        assert settled.ids.total() == 3
        receiver.start()
        feed(notifier, settled, range(3, 4))
        await until(lambda: queue.sent == 1)

    assert queue.lost == notifier.counts.lost == 3
    assert [notice["lost_before"] for notice in receiver.notices()] == [3]
    lost = sorted(
        record.message for record in caplog.records if record.message.startswith("notification lost for json #1")
    )
    assert len(lost) == 3
    assert "(not accepted within 3600 s): HIGH LOOP_DETECTED of run r0 (LOOP003), control event c0" in lost[0]


async def test_a_rejected_notification_does_not_delay_the_others(receiver: Receiver) -> None:
    settled = Settled()
    receiver.statuses.append(400)
    async with notifying(to(receiver.json_url)) as (notifier, _):
        feed(notifier, settled, range(3))
        await until(lambda: settled.ids.total() == 3)

    assert [notice["run_id"] for notice in receiver.notices()] == ["r1", "r2", "r0"]


async def test_a_full_queue_loses_the_oldest_and_reports_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_queue, "WAITING_MAX", 5)
    receiver.open.clear()
    settled = Settled()
    async with notifying(to(receiver.json_url)) as (notifier, [queue]):
        feed(notifier, settled, range(1))
        await until(lambda: receiver.calls, what="the first to be on its way")
        feed(notifier, settled, range(1, 9))
        assert (queue.lost, queue.waiting) == (3, 5)
        receiver.open.set()
        await until(lambda: settled.ids.total() == 9)

    assert [notice["run_id"] for notice in receiver.notices()] == ["r0", *[f"r{n}" for n in range(4, 9)]]
    assert [notice["lost_before"] for notice in receiver.notices()] == [0, 3, 0, 0, 0, 0]


async def test_destinations_get_only_the_notifications_that_they_select(receiver: Receiver) -> None:
    other = Receiver().start()
    settled = Settled()
    try:
        urgent = to(other.json_url, minimum_urgency="CRITICAL")
        acme = to(receiver.json_url, triggers=["loop"], tenants=["acme"])
        async with notifying(urgent, acme) as (notifier, _):
            controls = [
                control(1, tenant="acme"),
                control(2, tenant="acme", code="STALL001"),
                control(3, tenant="other"),
                control(4, type="task.escalated", terminal_status="escalated", code="TASK008"),
                control(5, severity="warn", halt_reason=None, terminal_status=None, tenant="acme", code="LOOP001"),
            ]
            for one in controls:
                notifier.add(one, settled.of(one.id))
            await until(lambda: settled.ids.total() == 5)
    finally:
        other.stop()

    assert [one["control_id"] for one in receiver.notices()] == ["c1"]
    assert [one["control_id"] for one in other.notices()] == ["c4"]


async def test_the_same_control_event_read_again_is_sent_once_and_settled_twice(receiver: Receiver) -> None:
    receiver.open.clear()
    settled = Settled()
    async with notifying(to(receiver.json_url)) as (notifier, _):
        notifier.add(control(1), settled.of("first"))
        notifier.add(control(1), settled.of("again"))
        await until(lambda: receiver.calls)
        assert not settled.ids
        receiver.open.set()
        await until(lambda: settled.ids["first"] and settled.ids["again"])
        notifier.add(control(1), settled.of("later"))
        assert settled.ids["later"] == 1

    assert len(receiver.posts) == 1
    assert (notifier.counts.notices, notifier.counts.repeated) == (1, 1)


async def test_a_resumed_run_that_loops_again_notifies_again(receiver: Receiver) -> None:
    settled = Settled()
    resumed = control(3, type="run.resumed", severity="info", code="RESUME", halt_reason=None, terminal_status=None)
    async with notifying(to(receiver.json_url)) as (notifier, _):
        for one in (control(1), control(2), resumed, control(4)):
            notifier.add(one, settled.of(one.id))
        await until(lambda: settled.ids.total() == 4)

    assert [notice["control_id"] for notice in receiver.notices()] == ["c1", "c4"]


async def test_triggers_can_be_off_or_have_another_urgency(receiver: Receiver) -> None:
    settled = Settled()
    async with notifying(to(receiver.json_url), triggers={"loop": False, "stalled": "critical"}) as (notifier, _):
        notifier.add(control(1), settled.of("c1"))
        notifier.add(control(2, code="STALL001"), settled.of("c2"))
        await until(lambda: settled.ids.total() == 2)

    assert [notice["notification"]["urgency"] for notice in receiver.notices()] == ["CRITICAL"]
