"""A process that spends: `python -m tests.client.spender URL PREFIX CALLERS SEED`.

With callers, it waits for a line on standard input; then each caller reserves, and spends at most its reservation,
until it is refused. It prints their total spend in micro-USD. With no callers, it reserves the whole budget and keeps
it.
"""

from __future__ import annotations

import asyncio
import random
import sys

from streamproc.client.admission.admission import Admission
from streamproc.errors import Refused
from tests.client.money import open_admission

TTL_S = 3.0
LIMIT_USD = 1
LIMITS = {"session": {"cost_usd": LIMIT_USD}, "tenant": {"day": {"cost_usd": LIMIT_USD}}}
ESTIMATE_MICRO = 4_000


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def caller(admission: Admission, number: int, chance: random.Random) -> int:
    """Spend until refused. Returns the amount spent."""
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
                return spent  # no hold is open, so nothing can be returned


async def spend(url: str, prefix: str, callers: int, seed: int) -> None:
    async with open_admission(url, prefix, ttl_s=TTL_S, timeout_s=30.0) as admission:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        chance = random.Random(seed)
        numbers = range(seed * callers, (seed + 1) * callers)
        say(sum(await asyncio.gather(*(caller(admission, number, chance) for number in numbers))))


async def hold_all(url: str, prefix: str) -> None:
    async with open_admission(url, prefix, ttl_s=TTL_S) as admission:
        payer = admission.payer("holder", session="shared", tenant="shared", limits=LIMITS)
        async with payer.reserve(cost_usd=LIMIT_USD):
            say("holding")
            await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    url, prefix, callers, seed = sys.argv[1:]
    asyncio.run(spend(url, prefix, int(callers), int(seed)) if int(callers) else hold_all(url, prefix))
