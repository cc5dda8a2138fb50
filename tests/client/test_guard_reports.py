"""Guards report which runs they watch and which they have stopped, and never wait for that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamproc.client import BlockingHaltListener, HaltListener, guard_reports
from streamproc.client.guard_reports import GuardReports
from streamproc.errors import Halted
from streamproc.fingerprint import read_event
from streamproc.fleet.issuing import issue_command
from streamproc.kafka import topics as kafka_topics
from streamproc.model.guard_report import encode_guard_report, is_guard_report
from streamproc.model.wire import HaltAcknowledged
from streamproc.settings import Settings, load_settings
from tests.client.records import turns_on
from tests.feeding import Feed
from tests.waiting import until


@pytest.fixture
def settings(brokers: str, topic_prefix: str) -> Settings:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    asyncio.run(kafka_topics.apply(settings))
    return settings


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_reports, "WATCHED_S", 0.0)


async def reported(settings: Settings) -> list[tuple[str, str]]:
    events = [event for event in await turns_on(settings) if is_guard_report(event)]
    return [(event.run_id, (event.labels or {})["guard"]) for event in events]


async def test_a_guard_that_is_cancelled_says_so_and_one_that_ends_says_that_it_has_left(
    settings: Settings, at_once: None
) -> None:
    async with HaltListener(settings=settings) as halts:

        async def work() -> None:
            async with halts.guard("stopped"), halts.guard("stopped"):
                async with halts.guard("left"):
                    await until(lambda: halts.reports.sent == 2, 30, "both to be watched")
                commands.append(asyncio.create_task(issue_command(settings, "STOP", "run:stopped", "ada", "enough")))
                await asyncio.Event().wait()

        # The command has a task of its own: the halt may arrive before it returns, and would cancel it halfway.
        commands: list[asyncio.Task[object]] = []
        with pytest.raises(Halted):
            await work()
        await asyncio.gather(*commands)
        with pytest.raises(Halted):  # it does not begin
            await halts.guard("stopped").__aenter__()
    found = await reported(settings)
    assert sorted(set(found)) == [
        ("left", "left"), ("left", "watching"), ("stopped", "stopped"), ("stopped", "watching"),
    ]  # fmt: skip


async def test_a_guard_that_is_over_soon_opens_no_connection(settings: Settings) -> None:
    async with HaltListener(settings=settings) as halts:
        for number in range(20):
            async with halts.guard(f"r{number}"):
                await asyncio.sleep(0)
        assert halts.reports._producer is None
    assert await reported(settings) == []


def test_blocking_guards_report_the_same(settings: Settings, at_once: None) -> None:
    def work(halts: BlockingHaltListener) -> None:
        with halts.guard("r1") as guard:
            asyncio.run(issue_command(settings, "STOP", "fleet", "ada", "enough"))
            guard.sleep(60)

    with BlockingHaltListener(settings=settings) as halts, pytest.raises(Halted):
        work(halts)
    assert ("r1", "stopped") in asyncio.run(reported(settings))


@pytest.mark.parametrize("how", ["argument", "setting", "shadow"])
async def test_reports_can_be_turned_off(settings: Settings, how: str, at_once: None) -> None:
    given: dict[str, Any] = {"setting": {"guard_reports": False}, "shadow": {"shadow": "trial"}}.get(how, {})
    off = settings.model_copy(update=given)
    reports = HaltListener(settings=off, report=False if how == "argument" else None).reports
    reports.start()
    reports.entered("r1")
    reports.ended("r1", halted=True)
    await reports.close()
    assert (reports.enabled, reports.sent, len(reports._queue)) == (False, 0, 0)


async def test_without_a_broker_a_guard_is_cancelled_all_the_same_and_reports_are_bounded(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_reports, "CLOSE_S", 0.2)
    reports = GuardReports(load_settings(brokers="127.0.0.1:1"), enabled=True)
    reports.start()
    for number in range(guard_reports.QUEUE_MAX + 5_000):
        reports.entered(f"r{number}")
    for number in range(guard_reports.QUEUE_MAX + 5_000):
        reports.ended(f"r{number}", halted=True)
    assert len(reports._watched) == 0
    assert len(reports._queue) == guard_reports.QUEUE_MAX
    assert len(reports._stopped) <= guard_reports.RUNS_MAX
    await reports.close()
    assert reports.sent == 0


async def test_a_program_that_asks_in_a_loop_reports_once_a_second_at_most(settings: Settings) -> None:
    reports = GuardReports(settings, enabled=True)
    reports.start()
    for _ in range(1_000):
        reports.entered("r1", once=True)
        reports.ended("r1", halted=True)
    assert len(reports._queue) <= 2
    await reports.close()


def test_a_report_changes_neither_the_state_of_a_run_nor_what_is_decided() -> None:
    feed = Feed()
    before = feed.stored
    for state in ("watching", "stopped", "left"):
        report = read_event(encode_guard_report("r1", f"e-{state}", state, "box/7"))
        assert is_guard_report(report)
        assert feed.event(report, 1_000) == []
    assert feed.stored == before
    person = HaltAcknowledged(w=1, run_id="r1", event_id="p", by="ada")
    assert not is_guard_report(person)
    feed.event(person, 1_000)
    assert feed.stored != before
