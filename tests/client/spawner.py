"""A process that starts children without end: `python -m tests.client.spawner URL PREFIX NUMBER`.

It waits for a line on standard input, then asks for births until it is refused three times, and keeps every other one
alive. It prints what it was granted; then it waits for another line, and ends its births.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from streamproc.errors import SpawnRefused
from tests.client.money import open_admission

LIMITS = {"maxSessionRuns": 300, "maxConcurrentRuns": 120}
ROOT = {"session": "s", "parent": "root"}


async def main(url: str, prefix: str, number: str) -> None:
    loop, granted, refused = asyncio.get_running_loop(), 0, 0
    async with (
        open_admission(url, prefix, births=LIMITS, timeout_s=60.0) as admission,
        contextlib.AsyncExitStack() as stack,
    ):
        say("ready")
        await loop.run_in_executor(None, sys.stdin.readline)
        while refused < 3:
            birth = admission.birth(f"{number}-{granted + refused}", **ROOT)
            try:
                await stack.enter_async_context(birth)
            except SpawnRefused:
                refused += 1
                continue
            granted += 1
            if granted % 2:
                await admission.end_birth(birth)
        say(granted)
        await loop.run_in_executor(None, sys.stdin.readline)


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
