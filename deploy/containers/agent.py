"""Agents that go nowhere, until they are halted. Prints after how many turns and seconds; exits 1 after a minute.

The names of the runs are its arguments.
"""

import asyncio
import sys
import time

from streamproc import Halted, HaltListener, TurnPublisher

PATIENCE_S = 60
PAUSE_S = 0.1
CALL = {"name": "run", "args": {"cmd": "pytest"}, "result": "2 failed"}


async def work(run_id: str, publisher: TurnPublisher, halts: HaltListener) -> bool:
    began, turns = time.monotonic(), 0
    try:
        async with halts.guard(run_id):
            while time.monotonic() - began < PATIENCE_S:
                await asyncio.sleep(PAUSE_S)
                turns += 1
                await publisher.turn(run_id=run_id, node="coder", output="Set a to 2.", tool_calls=[CALL])
    except Halted as halted:
        print(f"{run_id} halted after {turns} turns and {time.monotonic() - began:.1f} s: {halted}")
        return True
    print(f"{run_id} was not halted by {turns} turns in {PATIENCE_S} s")
    return False


async def main() -> int:
    async with TurnPublisher() as publisher, HaltListener() as halts:
        return int(not all(await asyncio.gather(*(work(run_id, publisher, halts) for run_id in sys.argv[1:]))))


sys.exit(asyncio.run(main()))
