"""Faults of Redis. Only admission needs it: its callers behave as documented, and workers are unaffected."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Final

from pydantic import SecretStr

from deploy.local import redis
from streamproc import Admission
from streamproc.client.admission.admission import Payer
from streamproc.errors import Refused, Unavailable
from tests.faults.scenario import PATIENCE_S, Scenario
from tests.waiting import until

CALLERS: Final = 6
REST_S: Final = 0.01
TIMEOUT_S: Final = 5.0  # a Redis that is gone refuses at once; one on a busy machine only answers late
PRICE_MICRO: Final = 10_000
LIMIT_MICRO: Final = 200 * PRICE_MICRO


async def redis_gone(scenario: Scenario) -> None:
    """Kill and restart Redis repeatedly. Fail-closed callers never exceed the limit, the spending of fail-open ones is
    recorded in the end, and workers keep deciding."""
    times, turns = scenario.size((2, 1_500), (8, 40_000))
    server = redis.Server(scenario.directory / "redis")
    url = redis.url(await asyncio.to_thread(server.start))
    port = int(url.rpartition(":")[2].partition("/")[0])
    await scenario.started_worker(redis=url)
    stop = asyncio.Event()
    settings = scenario.settings.model_copy(update={"redis": SecretStr(url)})
    try:
        async with (
            Admission(settings=settings, timeout_s=TIMEOUT_S, close_timeout_s=10) as closed,
            Admission(settings=settings, timeout_s=TIMEOUT_S, close_timeout_s=10, on_unavailable="open") as opened,
        ):
            crowds = [
                Crowd(closed, closed.payer("closed", limits={"run": {"cost_usd": str(LIMIT_MICRO / 1e6)}}), stop),
                Crowd(opened, opened.payer("open"), stop),
            ]
            calling = [
                asyncio.create_task(crowd.call(scenario.result.seed + n)) for crowd in crowds for n in range(CALLERS)
            ]
            sending = asyncio.create_task(scenario.send(turns))
            for _ in range(times):
                await until(
                    lambda: all(crowd.made_progress() for crowd in crowds), PATIENCE_S, "progress of the callers"
                )
                await asyncio.to_thread(server.kill)
                scenario.result.times += 1
                await until(lambda: opened.trouble and closed.trouble, PATIENCE_S, "callers to notice")
                await asyncio.to_thread(server.start, port)
            await until(lambda: all(crowd.made_progress() for crowd in crowds), PATIENCE_S, "progress of the callers")
            stop.set()
            await asyncio.gather(*calling)
            await sending
            for crowd in crowds:
                await crowd.check()
            assert closed.lost == opened.lost == closed.unasked == 0
            assert opened.unasked, "fail-open callers must continue without Redis"
            assert crowds[0].seen["unavailable"], "fail-closed callers must not spend without a grant"
            assert crowds[0].spent_micro <= LIMIT_MICRO
    finally:
        await asyncio.to_thread(server.kill)


class Crowd:
    """Callers that reserve and settle until `stop` is set."""

    def __init__(self, admission: Admission, payer: Payer, stop: asyncio.Event) -> None:
        self.spent_micro = 0
        self.seen: Counter[str] = Counter()
        self._before = 0
        self._admission = admission
        self._payer = payer
        self._stop = stop

    def made_progress(self) -> bool:
        """Return whether Redis has answered ten more calls since this last returned True, without trouble."""
        answered = self._admission.granted + self._admission.refused
        if self._admission.trouble is not None or answered < self._before + 10:
            return False
        self._before = answered
        return True

    async def call(self, seed: int) -> None:
        """Run one caller. Half of the calls cost less than estimated."""
        rng = random.Random(seed)
        while not self._stop.is_set():
            try:
                async with self._payer.reserve(cost_usd=str(PRICE_MICRO / 1e6)) as hold:
                    await asyncio.sleep(rng.uniform(0, 0.02))  # the paid work
                    cost_micro = rng.choice((PRICE_MICRO, PRICE_MICRO // 2))
                    hold.settle(cost_usd=str(cost_micro / 1e6))
                    self.spent_micro += cost_micro
            except Unavailable:
                self.seen["unavailable"] += 1
                await self._rest()
            except Refused:
                self.seen["refused"] += 1
                await self._rest()

    async def _rest(self) -> None:
        """Wait before the next attempt, or until `stop` is set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_S):
                await self._stop.wait()

    async def check(self) -> None:
        """Check that all spending is recorded and nothing is held."""

        async def recorded() -> bool:
            if self._admission.unbooked:
                return False
            [balance, *_] = await self._admission.balances(self._payer)
            return (balance.spent_usd_micro, balance.held_usd_micro) == (self.spent_micro, 0)

        await until(recorded, PATIENCE_S, f"{self.spent_micro} micro-USD to be recorded")
