"""Agents that work under guards until they are stopped: `python guarded.py RUN…`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from streamproc import Halted, HaltListener, TurnPublisher


async def work(run_id: str, halts: HaltListener, turns: TurnPublisher) -> None:
    with suppress(Halted):
        async with halts.guard(run_id):
            await turns.turn(run_id=run_id, node="coder", output=f"{run_id} begins")
            await asyncio.Event().wait()


async def main() -> None:
    async with HaltListener() as halts, TurnPublisher() as turns:
        await asyncio.gather(*(work(run_id, halts, turns) for run_id in sys.argv[1:]))


asyncio.run(main())
