"""The tasks of a worker: where they stand, and their end."""

from __future__ import annotations

import asyncio
import sys
import time

from streamproc.worker.limits import CANCEL_AGAIN_S, LEAVE_TIMEOUT_S


def dump_tasks() -> None:
    """Where every task stands: for whoever looks for the cause."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=6, file=sys.stderr)


async def cancel_all() -> None:
    """End whatever still runs. Where Faust could not stop, its agents take being cancelled for a crash and begin anew:
    so it is done again until nothing is left, or nobody waits any more."""
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    while time.monotonic() < deadline:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
