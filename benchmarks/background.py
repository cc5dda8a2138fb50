"""Background load: publish a steady rate of honest turns from a separate process, until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from typing import Final

import uvloop

from streamproc import TurnPublisher
from streamproc.settings import load_settings

TICK_S: Final = 0.005
RUNS: Final = 50


async def publish(per_s: int, runs: int) -> None:
    """Publish until cancelled."""
    async with TurnPublisher(settings=load_settings()) as turns:
        began, number = time.monotonic(), 0
        while True:
            for _ in range(int((time.monotonic() - began) * per_s) - number):
                call = {"name": "read_file", "args": {"line": number}, "result": f"contents of line {number}"}
                await turns.turn(run_id=f"honest-{number % runs}", node="agent", tool_calls=[call])
                number += 1
            await asyncio.sleep(TICK_S)


async def main() -> None:
    """``python -m benchmarks.background TURNS_A_SECOND [RUNS]``."""
    task = asyncio.ensure_future(publish(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else RUNS))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    uvloop.run(main())
