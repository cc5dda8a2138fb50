"""A process that spends: `python -m tests.client.spender URL PREFIX CALLERS SEED`.

With callers it waits for a line on its standard input; then each of them reserves, and spends at most that, until it
is refused. It prints what they spent together, in micro-USD. With no callers it takes the whole budget and sits on it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING

from streamproc.errors import Refused
from tests.client.money import open_admission

if TYPE_CHECKING:
    from streamproc.client.admission.admission import Admission

TTL_S = 3.0
LIMIT_USD = 1
LIMITS = {"session": {"cost_usd": LIMIT_USD}, "tenant": {"day": {"cost_usd": LIMIT_USD}}}
ESTIMATE_MICRO = 4_000


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def caller(admission: Admission, number: int, chance: random.Random) -> int:
    """Spends what it can. Returns how much that was."""
    payer = admission.payer(f"run {number}", session="shared", tenant="shared", limits=LIMITS)
    spent = 0
    while True:
        try:
            async with payer.reserve(cost_usd=ESTIMATE_MICRO / 1_000_000) as hold:
                await asyncio.sleep(0)
                costs = chance.randint(ESTIMATE_MICRO // 2, ESTIMATE_MICRO)
                hold.settle(cost_usd=costs / 1_000_000)
                spent += costs
        except Refused as refused:
            if not refused.held:
                return spent  # nobody will give anything back


async def spend(url: str, prefix: str, callers: int, seed: int) -> None:
    async with open_admission(url, prefix, ttl_s=TTL_S, timeout_s=30.0) as admission:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        chance = random.Random(seed)
        numbers = range(seed * callers, (seed + 1) * callers)
        say(sum(await asyncio.gather(*(caller(admission, number, chance) for number in numbers))))


async def sit(url: str, prefix: str) -> None:
    async with open_admission(url, prefix, ttl_s=TTL_S) as admission:
        payer = admission.payer("sits", session="shared", tenant="shared", limits=LIMITS)
        async with payer.reserve(cost_usd=LIMIT_USD):
            say("sitting")
            await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    url, prefix, callers, seed = sys.argv[1:]
    asyncio.run(spend(url, prefix, int(callers), int(seed)) if int(callers) else sit(url, prefix))
