"""Many real processes that spend at once on a real Redis, and one that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamproc.client.admission.admission import Admission, Payer
from streamproc.errors import Refused
from tests.client.money import connect, money, open_admission
from tests.client.spender import ESTIMATE_MICRO, LIMIT_USD, LIMITS
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PROCESSES, CALLERS_EACH = 4, 50
LIMIT_MICRO = LIMIT_USD * 1_000_000


@contextlib.asynccontextmanager
async def spender(url: str, prefix: str, callers: int, seed: int) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.client.spender", url, prefix, str(callers), str(seed),
        cwd=ROOT, stdin=PIPE, stdout=PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process) -> str:
    return (await process.stdout.readline()).decode().strip()


async def test_two_hundred_callers_in_four_processes_together_never_overshoot(
    redis_url: str, topic_prefix: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        admission = await stack.enter_async_context(open_admission(redis_url, topic_prefix, timeout_s=30.0))
        payer = admission.payer("watcher", session="shared", tenant="shared")
        processes = [
            await stack.enter_async_context(spender(redis_url, topic_prefix, CALLERS_EACH, seed))
            for seed in range(PROCESSES)
        ]
        assert [await line(process) for process in processes] == ["ready"] * PROCESSES
        for process in processes:
            process.stdin.write(b"go\n")

        reports = asyncio.gather(*map(line, processes))
        seen = [await money(admission, payer, "session")]
        while not reports.done():
            seen.append(await money(admission, payer, "session"))
        spent = [int(one) for one in await reports]

        assert max(spent_so_far + held for spent_so_far, held in seen) <= LIMIT_MICRO
        # They did spend at the same time; a busy machine may start one of them when everything is spent.
        assert sum(map(bool, spent)) > 1
        assert LIMIT_MICRO - ESTIMATE_MICRO < sum(spent) <= LIMIT_MICRO
        assert await money(admission, payer, "session") == (sum(spent), 0)
        assert await money(admission, payer, "tenant", "day") == (sum(spent), 0)


async def can_pay(payer: Payer) -> bool:
    try:
        async with payer.reserve(cost_usd=LIMIT_USD) as hold:
            hold.release()
    except Refused as refused:
        return refused.held != LIMIT_MICRO  # only the other process's hold is in the way
    return True


async def test_a_hold_lasts_as_long_as_its_process_and_expires_after_a_kill(redis_url: str, topic_prefix: str) -> None:
    async with (
        connect(redis_url) as redis,
        open_admission(redis_url, topic_prefix) as admission,
        spender(redis_url, topic_prefix, 0, 0) as process,
    ):
        payer = admission.payer("other", session="shared", tenant="shared", limits=LIMITS)
        assert await line(process) == "holding"
        holds = f"{topic_prefix}:admission:{{shared}}:session:shared:holds"
        [(_, first_expiry)] = await redis.zrange(holds, 0, -1, withscores=True)

        async def extended() -> bool:
            seconds, _ = await redis.time()
            return seconds * 1000 > first_expiry

        await until(extended)
        assert not await can_pay(payer)

        process.kill()
        await process.wait()
        assert not await can_pay(payer)  # Redis does not know yet
        await until(lambda: can_pay(payer))


async def test_a_settlement_after_the_expiry_is_booked_once(redis_url: str, topic_prefix: str) -> None:
    async with open_admission(redis_url, topic_prefix) as admission:
        payer = admission.payer("r1", limits={"run": {"cost_usd": 1}})
        async with payer.reserve(cost_usd="0.60") as hold:
            hold.settle(cost_usd="0.50")
            await expired(admission, payer, redis_url)
            async with payer.reserve(cost_usd="0.70"):
                pass
        assert await money(admission, payer) == (1_200_000, 0)
        with pytest.raises(Refused):
            async with payer.reserve(cost_usd="0.01"):
                pass


async def expired(admission: Admission, payer: Payer, redis_url: str) -> None:
    """Expire all holds of the run, as if the holder had been frozen for too long."""
    async with connect(redis_url) as redis:
        key = payer.accounts.keys("")[2]
        for member in await redis.zrange(key, 0, -1):
            await redis.zadd(key, {member: 1})
            cost, tokens, hold = member.split(" ", 2)
            await redis.set(payer.accounts.keys(hold)[0], f"held {cost} {tokens} 1")
    assert (await money(admission, payer))[1] == 0
