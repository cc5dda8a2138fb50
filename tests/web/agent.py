"""An agent in a process of its own: it works inside of a guard until it is told to stop. It gets run, user, tenant."""

from __future__ import annotations

import asyncio
import sys

from streamproc import Halted, HaltListener, TurnPublisher
from tests.waiting import until


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def work(run: str, user: str, tenant: str) -> None:
    async with HaltListener() as halts, TurnPublisher() as turns:
        await turns.run_started(run_id=run, user=user, tenant=tenant)
        try:
            async with halts.guard(run, user=user, tenant=tenant):
                say("WORKING")
                for output in ("read the docs", "found the bug in sort.py", "wrote a test"):
                    await turns.turn(run_id=run, node="coder", output=output)
                await asyncio.Event().wait()  # a long turn: only a cancellation ends it
        except Halted as halted:
            before = halts.reports.sent
            say(f"CANCELLED {halted.control.message if halted.control else halted}")
            await until(lambda: halts.reports.sent > before, 30, "the report")  # closing sends for a second at most


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
