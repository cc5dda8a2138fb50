"""Tasks of a worker: running one until a stop is requested, dumping their stacks, and cancelling them all."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from streamproc.worker.limits import CANCEL_AGAIN_S, LEAVE_TIMEOUT_S

T = TypeVar("T")


class Stopped(Exception):
    """The worker was asked to stop."""


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work; raise `Stopped` as soon as a stop is requested."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            raise Stopped
        return task.result()
    finally:
        for pending in (task, stopping):
            pending.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


def dump_tasks() -> None:
    """Print the stack of every task to stderr."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=6, file=sys.stderr)


async def cancel_all() -> None:
    """Cancel every remaining task, repeatedly, until none is left or the time is up.

    Where Faust could not stop, its agents treat a cancellation as a crash and start again.
    """
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    while time.monotonic() < deadline:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
