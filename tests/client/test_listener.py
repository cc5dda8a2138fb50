"""The listener without a broker: errors at the start, and queries that need none."""

from __future__ import annotations

import asyncio
import logging

import pytest

from streamproc.client import HaltListener
from streamproc.client.halt_records import read_control_news
from streamproc.errors import Halted, Unavailable
from tests.client.records import halt_event, warning_event
from tests.waiting import until


async def test_opening_without_a_broker_raises(nowhere: str) -> None:
    before = asyncio.all_tasks()

    with pytest.raises(Unavailable, match="halts could not be read") as unavailable:
        async with HaltListener(nowhere, start_timeout_s=0.5):
            pass

    assert nowhere in str(unavailable.value)
    assert asyncio.all_tasks() == before


async def test_without_waiting_work_proceeds_unguarded(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    async with HaltListener(nowhere, wait=False) as halts:
        trouble = await until(lambda: halts.trouble, what="the first failed connection")
        await until(lambda: halts.trouble is not trouble, what="the second failed connection")

        assert (halts.connected, halts.caught_up.is_set()) == (False, False)
        async with halts.guard("r1"):  # fails open
            halts.check("r1")

    ours = [record for record in caplog.records if record.name.startswith("streamproc.")]
    assert [record.message for record in ours if "receiving no halts" in record.message] == [ours[0].message]
    assert ours[0].levelno == logging.WARNING


async def test_starting_can_be_cancelled(nowhere: str) -> None:
    before = asyncio.all_tasks()
    task = asyncio.create_task(HaltListener(nowhere, start_timeout_s=3600).start())
    await until(lambda: len(asyncio.all_tasks()) > len(before) + 1, what="the listener's own task")

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_listener_can_be_opened_only_once(nowhere: str) -> None:
    async with HaltListener(nowhere, wait=False) as halts:
        with pytest.raises(RuntimeError, match="once"):
            await halts.start()


def test_queries_need_neither_a_broker_nor_an_event_loop(nowhere: str) -> None:
    halts = HaltListener(nowhere)
    value = halt_event("r1").model_dump_json(exclude_none=True).encode()
    assert halts.halted("r1") is None
    halts.check("r1")

    halts.dispatcher.control(read_control_news(value, 1), value)

    assert halts.halted("r1") == halt_event("r1")
    assert halts.halted_runs == 1
    with pytest.raises(Halted, match="The same call three times"):
        halts.check("r1")
    halts.check("r2")


async def test_a_slow_reader_loses_the_oldest_events_and_they_are_counted(nowhere: str) -> None:
    halts = HaltListener(nowhere)
    controls = halts.subscribe(buffer_max=2)

    for number in range(5):
        value = warning_event("r1", f"c{number}").model_dump_json(exclude_none=True).encode()
        halts.dispatcher.control(read_control_news(value, 1), value)
    controls.close()

    assert [control.id async for control in controls] == ["c3", "c4"]
    assert controls.dropped == 3


async def test_a_duplicate_control_event_is_delivered_once(nowhere: str) -> None:
    halts = HaltListener(nowhere)
    controls = halts.subscribe()
    value = warning_event("r1", "c1").model_dump_json(exclude_none=True).encode()

    for _ in range(3):
        halts.dispatcher.control(read_control_news(value, 1), value)
    controls.close()

    assert [control.id async for control in controls] == ["c1"]


async def test_a_subscription_ends_when_the_listener_closes(nowhere: str) -> None:
    async with HaltListener(nowhere, wait=False) as halts:
        controls = halts.subscribe()
        reader = asyncio.create_task(anext(controls))
        await asyncio.sleep(0)

    with pytest.raises(StopAsyncIteration):
        await reader


async def test_closing_the_listener_inside_a_guard_logs_a_warning(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    halts = HaltListener(nowhere, wait=False)
    await halts.start()
    async with halts.guard("r1"):
        await halts.close()

    assert "closed with 1 run still guarded" in caplog.text
