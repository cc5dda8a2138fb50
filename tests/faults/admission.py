"""What happens to Redis. Only admission needs it: its callers do as documented, and the workers do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from deploy.local import redis
from streamproc import Admission
from streamproc.errors import Refused, Unavailable
from tests.faults.scene import PATIENCE_S
from tests.waiting import until

if TYPE_CHECKING:
    from streamproc.client.admission.admission import Payer
    from tests.faults.scene import Scene

CALLERS: Final = 6
REST_S: Final = 0.01
PRICE_MICRO: Final = 10_000
LIMIT_MICRO: Final = 200 * PRICE_MICRO


async def redis_gone(scene: Scene) -> None:
    """Redis is killed and comes back, again and again. Closed callers never spend more than the limit; of open ones
    everything is booked in the end; and decisions go on meanwhile."""
    times, turns = scene.size((2, 1_500), (8, 40_000))
    server = redis.Server(scene.directory / "redis")
    url = redis.url(await asyncio.to_thread(server.start))
    port = int(url.rpartition(":")[2].partition("/")[0])
    await scene.started_worker(redis=url)
    over = asyncio.Event()
    settings = scene.settings.model_copy(update={"redis": url})
    try:
        async with (
            Admission(settings=settings, timeout_s=0.5, close_timeout_s=10) as closed,
            Admission(settings=settings, timeout_s=0.5, close_timeout_s=10, on_unavailable="open") as opened,
        ):
            crowds = [
                Crowd(closed, closed.payer("closed", limits={"run": {"cost_usd": str(LIMIT_MICRO / 1e6)}}), over),
                Crowd(opened, opened.payer("open"), over),
            ]
            calling = [
                asyncio.create_task(crowd.call(scene.figures.seed + n)) for crowd in crowds for n in range(CALLERS)
            ]
            sending = asyncio.create_task(scene.send(turns))
            for _ in range(times):
                await until(lambda: all(crowd.went_on() for crowd in crowds), PATIENCE_S, "callers to go on")
                await asyncio.to_thread(server.kill)
                scene.figures.times += 1
                await until(lambda: opened.trouble and closed.trouble, PATIENCE_S, "callers to notice")
                await asyncio.to_thread(server.start, port)
            await until(lambda: all(crowd.went_on() for crowd in crowds), PATIENCE_S, "callers to go on")
            over.set()
            await asyncio.gather(*calling)
            await sending
            for crowd in crowds:
                await crowd.judge()
            assert closed.lost == opened.lost == closed.unasked == 0
            assert opened.unasked, "nobody was asked while Redis was away, and work went on"
            assert crowds[0].seen["unavailable"], "nobody spends what nobody has granted"
            assert crowds[0].spent_micro <= LIMIT_MICRO
    finally:
        await asyncio.to_thread(server.kill)


class Crowd:
    """Callers who reserve and settle until they are told that it is over."""

    def __init__(self, admission: Admission, payer: Payer, over: asyncio.Event) -> None:
        self.spent_micro = 0
        self.seen: Counter[str] = Counter()
        self._before = 0
        self._admission = admission
        self._payer = payer
        self._over = over

    def went_on(self) -> bool:
        """Whether Redis has answered some more calls since this said so last, and nothing is wrong."""
        answered = self._admission.granted + self._admission.refused
        if self._admission.trouble is not None or answered < self._before + 10:
            return False
        self._before = answered
        return True

    async def call(self, seed: int) -> None:
        """Be one caller. Half of the calls cost less than was estimated."""
        dice = random.Random(seed)
        while not self._over.is_set():
            try:
                async with self._payer.reserve(cost_usd=str(PRICE_MICRO / 1e6)) as hold:
                    await asyncio.sleep(dice.uniform(0, 0.02))  # the work that is paid for
                    cost_micro = dice.choice((PRICE_MICRO, PRICE_MICRO // 2))
                    hold.settle(cost_usd=str(cost_micro / 1e6))
                    self.spent_micro += cost_micro
            except Unavailable:
                self.seen["unavailable"] += 1
                await self._rest()
            except Refused:
                self.seen["refused"] += 1
                await self._rest()

    async def _rest(self) -> None:
        """Before the next try, unless it is over by then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_S):
                await self._over.wait()

    async def judge(self) -> None:
        """All that was spent is booked, and nothing is held any more."""

        async def booked() -> bool:
            if self._admission.unbooked:
                return False
            [balance, *_] = await self._admission.balances(self._payer)
            return (balance.spent_usd_micro, balance.held_usd_micro) == (self.spent_micro, 0)

        await until(booked, PATIENCE_S, f"{self.spent_micro} micro-USD to be booked")
