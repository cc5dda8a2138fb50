"""A task that fails at the moment when its caller is cancelled."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from streamproc.kafka.session import run_in_own_task


async def test_a_failure_after_the_cancellation_of_the_caller_is_not_logged() -> None:
    loop, logged = asyncio.get_running_loop(), []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        logged.append(context)

    loop.set_exception_handler(note)
    failing = asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ConnectionError("no broker answers")

    waiting = asyncio.create_task(run_in_own_task(fail()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    failing.set()
    await asyncio.sleep(0)  # it has failed, and the waiter has not been notified yet
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    del waiting  # its frames hold the task that failed
    gc.collect()
    assert logged == []
