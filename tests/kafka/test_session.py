"""A task of its own that fails in the moment in which nobody waits for it any more."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from streamproc.kafka.session import run_in_own_task


async def test_a_failure_that_nobody_waits_for_is_not_printed() -> None:
    loop, printed = asyncio.get_running_loop(), []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        printed.append(context)

    loop.set_exception_handler(note)
    failing = asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ConnectionError("nobody is there")

    waiting = asyncio.create_task(run_in_own_task(fail()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    failing.set()
    await asyncio.sleep(0)  # it has failed, and the waiter does not know it yet
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    del waiting  # its frames hold the task that failed
    gc.collect()
    assert printed == []
