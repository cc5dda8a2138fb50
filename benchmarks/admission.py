"""``python -m benchmarks.admission``: the latency of admission for a caller, compared with a PING of the same Redis.

Each call checks all four levels, with a limit on every period. PING, reserve and settle alternate: other load on the
machine then affects them equally. Needs STREAMPROC_REDIS.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Awaitable
from typing import Final

from benchmarks.table import BenchmarkDefect, Row, markdown
from benchmarks.timing import percentile
from streamproc.client.admission.admission import Admission, Payer
from streamproc.settings import load_settings

ROUNDS: Final = 3_000
WARM_UP: Final = 200
CALLERS: Final = 200
CALLS_EACH: Final = 25

PERIODS: Final = {period: {"cost_usd": 10**6, "tokens": 10**12} for period in ("hour", "day", "month")}
LIMITS: Final = {
    "run": {"cost_usd": 10**6, "tokens": 10**12},
    "session": {"cost_usd": 10**6, "tokens": 10**12},
    "user": PERIODS,
    "tenant": PERIODS,
}


async def rows(rounds: int = ROUNDS, callers: int = CALLERS) -> list[Row]:
    """Measure latencies in µs and a rate."""
    settings = load_settings(topic_prefix=f"bench-{uuid.uuid4().hex}")
    async with Admission(settings=settings, timeout_s=30) as admission:
        payer = admission.payer("run", session="session", user="user", tenant="tenant", limits=LIMITS)
        before = await _in_redis(admission)
        ping, reserve, settle = await _one_at_a_time(admission, payer, rounds)
        calls, us = (after - first for after, first in zip(await _in_redis(admission), before, strict=True))
        rate = await _together(payer, callers)
        spent = (await admission.balances(payer))[0].spent_tokens
        expected = rounds + WARM_UP + callers * CALLS_EACH
        if spent != expected:
            raise BenchmarkDefect(f"{spent} tokens were recorded, expected {expected}")
    found = [Row("admission.script", "script run time in Redis, mean of reserve and settle", us / calls, "µs")]
    for name, share in (("p50", 0.50), ("p99", 0.99)):
        beside = percentile(ping, share)
        for what, times in (("reserve", reserve), ("settle", settle)):
            us = percentile(times, share)
            found.append(Row(f"admission.{what}.{name}", f"{what}, 4 levels, {name}", us, "µs", "PING", beside))
    return [*found, Row("admission.rate", f"reserve and settle, {callers} callers in one process", rate, "pairs/s")]


async def _one_at_a_time(admission: Admission, payer: Payer, rounds: int) -> tuple[list[float], ...]:
    times: tuple[list[float], ...] = ([], [], [])
    for _ in range(WARM_UP + rounds):
        reservation = payer.reserve(cost_usd=0.001, tokens=1)
        took = (
            await _us(admission._script.ping()),
            await _us(reservation.__aenter__()),
            await _us(reservation.__aexit__(None, None, None)),
        )
        for values, us in zip(times, took, strict=True):
            values.append(us)
    return tuple(values[WARM_UP:] for values in times)


async def _in_redis(admission: Admission) -> tuple[int, int]:
    """Return how many script calls Redis has run and the µs it spent on them."""
    stats = (await admission._script._client.info("commandstats")).get("cmdstat_evalsha", {})
    return stats.get("calls", 0), stats.get("usec", 0)


async def _us(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return (time.perf_counter() - began) * 1e6


async def _together(payer: Payer, callers: int) -> float:
    async def caller() -> None:
        for _ in range(CALLS_EACH):
            async with payer.reserve(cost_usd=0.001, tokens=1):
                pass

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return callers * CALLS_EACH / (time.perf_counter() - began)


def main() -> int:
    """Measure and print; return the exit code."""
    if not os.environ.get("STREAMPROC_REDIS"):
        print("No Redis: run `make redis-start`, and set STREAMPROC_REDIS as it prints", file=sys.stderr)
        return 2
    print(markdown(asyncio.run(rows()), []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
