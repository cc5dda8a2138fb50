"""The listener with a real broker: earlier halts, live halts, and missing topics."""

from __future__ import annotations

import pytest

from streamproc.client import HaltListener
from streamproc.errors import Halted, Unavailable
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings
from tests.client.records import Worker, guarded, halt_event, open_worker, resume_event, warning_event
from tests.waiting import until


@pytest.mark.kafka
async def test_earlier_halts_are_known_at_the_start(settings: Settings, worker: Worker) -> None:
    for number in range(40):
        await worker.status(f"run-{number}", "running")
    for number in range(40):
        if number % 4 == 0:
            await worker.status(f"run-{number}", "halted", halt_event(f"run-{number}"))
    await worker.status("run-4", "running")  # resumed
    await worker.status("run-8", "finished")
    await worker.write("runs", "run-12", None)  # over and evicted
    await worker.control(halt_event("only-control"))  # from a worker that ended before it wrote the status

    async with HaltListener(settings=settings) as halts:
        assert halts.caught_up.is_set()
        assert halts.connected
        known = [number for number in range(40) if halts.halted(f"run-{number}")]

    assert known == [0, 16, 20, 24, 28, 32, 36]
    assert halts.halted("run-0") == halt_event("run-0")
    with pytest.raises(Halted):
        halts.check("run-0")  # known halts can still be queried after closing


@pytest.mark.kafka
async def test_a_decision_stops_a_task(settings: Settings, worker: Worker) -> None:
    async with HaltListener(settings=settings) as halts:
        mine, other = await guarded(halts, "mine"), await guarded(halts, "other")

        await worker.control(warning_event("mine", "w1"))
        await worker.control(halt_event("mine"))

        with pytest.raises(Halted) as halted:
            await mine
        assert halted.value.control == halt_event("mine")
        assert not other.done()
        other.cancel()


@pytest.mark.kafka
async def test_a_status_alone_stops_a_task(settings: Settings, worker: Worker) -> None:
    async with HaltListener(settings=settings) as halts:
        task = await guarded(halts, "r1")

        await worker.status("r1", "running")
        await worker.status("r1", "halted", halt_event("r1"))

        with pytest.raises(Halted):
            await task


@pytest.mark.kafka
async def test_a_run_can_be_resumed_and_halted_again(settings: Settings, worker: Worker) -> None:
    async with HaltListener(settings=settings) as halts:
        await worker.control(halt_event("r1", "first"))
        await until(lambda: halts.halted("r1"))

        await worker.control(resume_event("r1"))
        await until(lambda: not halts.halted("r1"))
        task = await guarded(halts, "r1")

        await worker.control(halt_event("r1", "second"))
        with pytest.raises(Halted):
            await task
        assert halts.halted("r1") == halt_event("r1", "second")


@pytest.mark.kafka
async def test_control_events_can_be_subscribed_to(settings: Settings, worker: Worker) -> None:
    await worker.control(warning_event("r1", "before"))
    async with HaltListener(settings=settings) as halts:
        controls = halts.subscribe()
        for control_id in ("w1", "w1", "w2"):
            await worker.control(warning_event("r1", control_id))
        await worker.control(halt_event("r1", "h1"))

        ids = [(await anext(controls)).id for _ in range(3)]

    assert ids == ["w1", "w2", "h1"]
    assert [control.id async for control in controls] == []


@pytest.mark.kafka
async def test_unreadable_records_are_skipped(
    settings: Settings, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    await worker.write("runs", "r1", b"nonsense")
    await worker.status("r1", "halted", halt_event("r1"))
    async with HaltListener(settings=settings) as halts:
        assert halts.halted("r1")
        assert halts.skipped == 1

        await worker.write("control", "r2", b"\xff\x00")
        await worker.write("control", "r2", None)
        await worker.control(halt_event("r2"))
        await until(lambda: halts.halted("r2"))
        assert halts.skipped == 2

    assert "unreadable record" in caplog.text


@pytest.mark.kafka
async def test_missing_topics_are_named_and_not_created(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)

    async with HaltListener(settings=settings, wait=False) as halts:
        trouble = await until(lambda: halts.trouble, what="the missing topics")

    assert isinstance(trouble, Unavailable)
    assert settings.topic("control") in str(trouble)
    assert "streamproc topics apply" in str(trouble)
    assert settings.topic("runs") in (await topics.check(settings)).missing


@pytest.mark.kafka
async def test_a_listener_that_does_not_wait_catches_up_later(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    async with HaltListener(settings=settings, wait=False) as halts:
        await until(lambda: halts.trouble, what="the missing topics")
        task = await guarded(halts, "r1")

        await topics.apply(settings)
        async with open_worker(settings) as worker:
            await worker.status("r1", "halted", halt_event("r1"))

        with pytest.raises(Halted):
            await task
        await halts.caught_up.wait()
        assert halts.trouble is None
