"""Faults that people must hear of: all workers are gone, or the broker is. Measures when each surface says so."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from subprocess import Popen
from typing import Final

import aiohttp

from tests.cli.conftest import ROOT, command
from tests.faults.brokers import own_broker, start
from tests.faults.scenario import PATIENCE_S, Scenario, ready
from tests.notify.receiver import Receiver
from tests.notify.test_on_kafka import Process
from tests.tui.test_in_a_terminal import TerminalSession
from tests.waiting import until
from tests.web.deployment import ADDRESS

LOOK_S: Final = 0.2
GUARD: Final = """
import asyncio, sys
from streamproc.client import HaltListener
from streamproc.settings import load_settings

async def main():
    settings = load_settings(brokers=sys.argv[1], topic_prefix=sys.argv[2])
    async with HaltListener(settings=settings) as halts:
        halts.on_state(lambda state: print(state.name, flush=True))
        await asyncio.Event().wait()

asyncio.run(main())
"""
BARS: Final = re.compile(r'<div id="bars"[^>]*>(.*?)</div>', re.DOTALL)
FIELDS: Final = re.compile(r'name="(\w+)" value="([^"]*)"')
AS_A_BROWSER: Final = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
TAGS: Final = re.compile(r"<[^>]+>")
LOST: Final = re.compile("No worker has decided|Not connected since")
FAILED: Final = re.compile("fail |streamproc: ")


class Surfaces:
    """A page, a TUI, a notifier and a guard beside the workers of a scenario, and `doctor` on demand. What each of them
    says of a fault is empty while it shows live workers."""

    def __init__(self, scenario: Scenario, session: aiohttp.ClientSession) -> None:
        self._receiver = Receiver().start()
        self._session = session
        self._where = ("--brokers", scenario.settings.brokers, "--topic-prefix", scenario.settings.topic_prefix)
        directory = scenario.directory
        self._page = Process(directory / "page.log", "page", "--listen", "127.0.0.1:0", *self._where)
        self._notifier = Process(directory / "notify.log", "notify", "--to", self._receiver.json_url, *self._where)
        self._tui = TerminalSession("watch", "--tui", *self._where)
        self._states = directory / "guard.states"
        place = scenario.settings.brokers, scenario.settings.topic_prefix
        with self._states.open("wb") as states, (directory / "guard.log").open("wb") as log:
            self._guard = Popen([sys.executable, "-c", GUARD, *place], cwd=ROOT, stdout=states, stderr=log)

    async def ready(self) -> None:
        """Log in to the page, and wait until all surfaces know of live workers."""
        await until(lambda: self._page.logged("open http"), PATIENCE_S, "the page")
        await until(lambda: self._notifier.logged("reading"), PATIENCE_S, "the notifier")
        address = ADDRESS.findall(self._page.log.read_text())[-1]
        self._origin = "/".join(address.split("/", 3)[:3])
        async with self._session.get(address) as form:
            fields = dict(FIELDS.findall(await form.text()))
        own = {"Origin": self._origin, "Sec-Fetch-Site": "same-origin"}
        async with self._session.post(f"{self._origin}/login/loopback", data=fields, headers=own) as page:
            assert BARS.search(await page.text()), await page.text()
        await self.say_nothing()

    async def say_nothing(self) -> None:
        """Wait until every surface shows live workers again."""

        async def well() -> bool:
            said = await self.page() or await self.tui()
            return not said and any("● live" in line for line in self._tui.lines)

        await until(well, PATIENCE_S, "page and TUI to show live workers", every_s=LOOK_S)
        await until(lambda: self._state == "watching", PATIENCE_S, "the guard to be watched")

    async def page(self) -> str:
        """The bar on the page."""
        async with self._session.get(f"{self._origin}/") as page:
            found = BARS.search(await page.text())
        return TAGS.sub("", found[1]) if found else ""

    async def tui(self) -> str:
        """The bar of the TUI."""
        while self._tui.read(0):
            pass
        return " ".join(line.strip() for line in self._tui.lines if LOST.search(line))

    async def doctor(self) -> str:
        """The first failure of `doctor`."""
        process = command("doctor", *self._where)
        lines = "".join(await asyncio.to_thread(process.communicate)).splitlines()
        return next((line for line in lines if FAILED.match(line)), "") if process.returncode else ""

    async def guard(self) -> str:
        """The state of the guard."""
        return "" if self._state == "watching" else f"halts.state is {self._state}"

    @property
    def _state(self) -> str:
        return (self._states.read_text().split() or [""])[-1]

    async def notification(self) -> str:
        """The evidence of the last notification, unless it is that all is well."""
        notices = [one["notification"] for one in self._receiver.notices()]
        return notices[-1]["evidence"] if notices and notices[-1]["type"] == "UNWATCHED" else ""

    async def heard(self, began_s: float) -> dict[str, tuple[float, str]]:
        """Wait until all of them have said it; return the seconds since `began_s` (monotonic) and the words of each."""
        looks = (self.page, self.tui, self.doctor, self.guard, self.notification)

        async def wait(look: Callable[[], Awaitable[str]]) -> tuple[float, str]:
            while not (words := await look()):
                assert time.monotonic() - began_s < PATIENCE_S, f"{look.__name__} says nothing"
                await asyncio.sleep(LOOK_S)
            return time.monotonic() - began_s, words

        found = await asyncio.gather(*map(wait, looks))
        return {look.__name__: one for look, one in zip(looks, found, strict=True)}

    def close(self) -> None:
        """End the processes."""
        self._tui.close()
        self._guard.kill()
        self._guard.wait()
        for process in (self._page, self._notifier):
            process.end(signal.SIGKILL)
        self._receiver.stop()


@asynccontextmanager
async def surfaces(scenario: Scenario) -> AsyncIterator[Surfaces]:
    """Start the surfaces of a scenario, and wait until they show live workers."""
    async with AsyncExitStack() as stack:
        cookies = aiohttp.CookieJar(unsafe=True)  # of an address without a name
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=cookies, headers=AS_A_BROWSER))
        made = Surfaces(scenario, session)
        stack.push_async_callback(asyncio.to_thread, made.close)
        await made.ready()
        yield made


async def workers_gone(scenario: Scenario) -> None:
    """Kill all workers with SIGKILL, publish turns that wait for them, and start others."""
    times, turns = scenario.size((1, 1_000), (3, 30_000))
    await two_workers(scenario)
    async with surfaces(scenario) as seen:
        for _ in range(times):
            await scenario.send(turns // times // 2)
            began_s = time.monotonic()
            for worker in list(scenario.workers):
                await scenario.kill(worker)
            scenario.result.times += 1
            heard, _ = await asyncio.gather(seen.heard(began_s), scenario.send(turns // times // 2))
            scenario.result.hear(heard)
            await two_workers(scenario)
            await seen.say_nothing()


async def broker_gone(scenario: Scenario) -> None:
    """Kill the broker with SIGKILL, and start it with its data when all surfaces have said so."""
    times, turns = scenario.size((1, 1_000), (2, 20_000))
    async with own_broker(scenario) as (broker, port):
        await start(broker, port)
        async with scenario.open():
            await two_workers(scenario)
            async with surfaces(scenario) as seen:
                for _ in range(times):
                    await scenario.send(turns // times)
                    began_s = time.monotonic()
                    await asyncio.to_thread(broker.kill)
                    scenario.result.times += 1
                    scenario.result.hear(await seen.heard(began_s))
                    await start(broker, port)
                    await seen.say_nothing()
            await scenario.finish()


async def two_workers(scenario: Scenario) -> None:
    """Start two workers, and wait until they have their partitions."""
    for worker in [scenario.start() for _ in range(2)]:
        await ready(worker)
