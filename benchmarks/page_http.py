"""The fleet page over HTTP: from `streamproc page` in a process of its own, logged in as its address says."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp

from benchmarks.table import BenchmarkDefect
from benchmarks.worker_process import Process
from streamproc.settings import Settings

ADDRESS: Final = re.compile(r"^open (http\S+)$", re.MULTILINE)
FORM: Final = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
FIELD: Final = re.compile(r'<input[^>]*name="([^"]*)"[^>]*value="([^"]*)"')
START_S: Final = 120
EVERY_S: Final = 0.2
WARM_UP: Final = 3


async def served_pages(settings: Settings, seconds: int, load: tuple[str, ...]) -> list[float]:
    """Return the ms of each fleet page that was served under a load; nothing where there is no page."""
    if find_spec("streamproc.web.server") is None:
        return []
    taken: list[float] = []
    with Process(settings, "streamproc", "page", "--listen", "127.0.0.1:0") as page:
        async with _logged_in(page) as (browser, address):
            await _caught_up(page, browser, address)
            with Process(settings, *load) as sending:
                answer = asyncio.ensure_future(sending.answer(seconds * 20 + START_S))
                while not answer.done():
                    page.check()
                    taken.append(await _get(browser, address))
                    await asyncio.sleep(EVERY_S)
                await answer
    return taken[WARM_UP:] or taken


@asynccontextmanager
async def _logged_in(page: Process) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Open a session as a browser does that is given the address with its token."""
    deadline = time.monotonic() + START_S
    while not (found := ADDRESS.findall(page.printed())):
        page.check()
        if time.monotonic() > deadline:
            raise BenchmarkDefect("the page did not say its address")
        await asyncio.sleep(0.1)
    parts = urlsplit(found[-1])
    origin = f"{parts.scheme}://{parts.netloc}"
    # The cookie is marked as secure; browsers take loopback for secure, and so does this session.
    jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=origin)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(found[-1]) as answer:
            form = FORM.search(await answer.text())
        if form is None:
            raise BenchmarkDefect("the page's address shows no form to log in")
        fields = {html.unescape(name): html.unescape(value) for name, value in FIELD.findall(form[2])}
        headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
        async with browser.post(urljoin(origin, html.unescape(form[1])), data=fields, headers=headers) as answer:
            if answer.status != 200:
                raise BenchmarkDefect(f"logging in to the page was answered by {answer.status}")
        yield browser, f"{origin}/"


async def _caught_up(page: Process, browser: aiohttp.ClientSession, address: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        page.check()
        async with browser.get(address) as answer:
            text = await answer.text()
        if "run-" in text and "Reading the topics" not in text:
            return
        if time.monotonic() > deadline:
            raise BenchmarkDefect("the page did not read what is there")
        await asyncio.sleep(0.2)


async def _get(browser: aiohttp.ClientSession, address: str) -> float:
    began = time.perf_counter()
    async with browser.get(address) as answer:
        text = await answer.text()
    if answer.status != 200 or "run-" not in text:
        raise BenchmarkDefect(f"the fleet page was answered by {answer.status}: {text[:200]}")
    return (time.perf_counter() - began) * 1000
