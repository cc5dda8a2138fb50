"""The delivery's guarantees to the engine, and the task helpers that it uses."""

from __future__ import annotations

import asyncio

import pytest

from streamproc.client.delivery import RUN_EVENTS_MAX
from streamproc.kafka.session import run_in_own_task, run_until_one_ends
from tests.feeding import Feed


def test_a_run_remembers_the_event_ids_of_a_batch_that_is_sent_again() -> None:
    feed = Feed()
    batch = [{"node": "coder", "output": f"text {n}", "event_id": f"e{n}"} for n in range(RUN_EVENTS_MAX + 1)]
    feed.all([*batch, *batch])
    assert (feed.state.turns, feed.state.duplicates) == (RUN_EVENTS_MAX + 1, RUN_EVENTS_MAX + 1)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def fail() -> None:
    raise OSError("gone")


async def give_up() -> None:
    raise asyncio.CancelledError


async def test_the_first_failure_cancels_the_other_coroutines() -> None:
    before = asyncio.all_tasks()

    with pytest.raises(OSError, match="gone"):
        await run_until_one_ends(forever(), fail(), forever())

    assert asyncio.all_tasks() == before
    assert asyncio.current_task().cancelling() == 0


async def test_a_cancellation_from_inside_becomes_a_connection_error() -> None:
    with pytest.raises(ConnectionError):
        await run_in_own_task(give_up())
    with pytest.raises(ConnectionError):
        await run_until_one_ends(forever(), give_up())


async def test_a_cancellation_from_outside_cancels_the_own_task() -> None:
    before = asyncio.all_tasks()
    task = asyncio.create_task(run_in_own_task(run_until_one_ends(forever())))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    before = asyncio.all_tasks()

    with pytest.raises(TimeoutError):
        await run_in_own_task(forever(), 0.01)

    assert asyncio.all_tasks() == before
