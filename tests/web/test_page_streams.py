"""Pages that are kept current: one person's cannot take the time, the places or the connections of others'."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

import pytest
from aiohttp import web

from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ChangeSubscription
from streamproc.read_model.rows import Changes, RunFilter
from streamproc.web import connections, live
from streamproc.web.access import Session
from streamproc.web.connections import LiveViews
from streamproc.web.views.run_rows import ListView

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


class Subscriptions:
    """What pages ask of a reader."""

    version = 0

    def subscribe(self) -> ChangeSubscription:
        return ChangeSubscription(lambda _subscription: None)


def session(name: str) -> Session:
    """Another login of this person each time."""
    return Session(id=secrets.token_hex(), name=name, rights=frozenset(), csrf="")


async def test_one_person_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OF_PERSON_MAX", 2)
    views = LiveViews(Subscriptions(), lambda _session: True)  # type: ignore[arg-type]

    async def hold(name: str, entered: asyncio.Event) -> None:
        async with views.connection(session(name)):
            entered.set()
            await asyncio.Event().wait()

    async def opened(name: str) -> asyncio.Task[None]:
        entered = asyncio.Event()
        task = asyncio.create_task(hold(name, entered))
        waiting = asyncio.create_task(entered.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return task

    first, second = await opened("eve"), await opened("eve")
    with pytest.raises(web.HTTPServiceUnavailable):
        async with asyncio.timeout(5):
            await (await opened("eve"))
    other = await opened("ada")
    assert len(views) == 3
    first.cancel()
    await asyncio.wait({first})
    again = await opened("eve")
    assert not again.done()
    for task in (second, other, again):
        task.cancel()
    await asyncio.wait({second, other, again})
    assert len(views) == 0


def test_counts_of_all_pages_leave_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with a search looks at every run for its counts, each second: thirty of them stood still."""
    now, counted = [1_000.0], [0]
    model, count = ReadModel(), live.fleet_standing

    def slow(asked: ReadModel, dismissed_ms: int) -> Any:
        now[0] += 0.1
        counted[0] += 1
        return count(asked, dismissed_ms)

    monkeypatch.setattr(live, "fleet_standing", slow)
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    feed = live.FleetFeed(model, ListView(RunFilter(text="x")), lambda: 100)
    for _ in range(29):
        feed.messages(Changes())
        now[0] += 1.0
    assert counted[0] == 1
    now[0] += 2.0
    feed.messages(Changes())
    assert counted[0] == 2
    model.close()


async def test_a_browser_that_does_not_read_loses_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WRITE_S", 0.05)
    ended = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            while True:
                await live._write(request, response, b"x" * 1_000_000)
        ended.set()
        return response

    app = web.Application()
    app.router.add_get("/", stream)
    runner = BoundedRunner(app, connections_max=5, own_names=False)
    port = await runner.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await ended.wait()
    with contextlib.suppress(ConnectionResetError):
        while await reader.read(1 << 20):
            pass
    writer.close()
    await runner.cleanup()
