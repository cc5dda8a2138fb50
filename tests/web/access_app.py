"""A page of two views behind `Access`, on a port of this machine, and a browser's requests to it."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING, Any

import aiohttp
import yarl
from aiohttp import web

from streamproc.fleet.commands import StopCounts
from streamproc.read_model.rows import CommandRow, DecisionFilter, DecisionRow, LiveRun, RefusedRow
from streamproc.report.markup import Html, foreign, tag
from streamproc.settings import Settings
from streamproc.web.access import Access, AccessOptions, build_access, session_of
from streamproc.web.command_views import command_form, command_routes
from streamproc.web.commands import PageCommands

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

KEY = "page:0123456789abcdef0123456789abcdef"


def layout(title: str, body: Html, request: web.Request) -> web.Response:
    """The least page that a body can stand in."""
    session = session_of(request)
    csrf = tag("meta", name="csrf", content=session.csrf) if session else Html()
    name = tag("header", foreign(session.name)) if session else Html()
    head = Html('<!doctype html><html lang="en"><meta charset="utf-8">') + tag("title", title) + csrf
    return web.Response(text=head + name + tag("main", body), content_type="text/html")


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FewRuns:
    """What a read model would say."""

    counts: dict[str, int] = field(default_factory=dict)
    runs: dict[str, LiveRun] = field(default_factory=dict)
    seen: list[CommandRow] = field(default_factory=list)
    decided: list[DecisionRow] = field(default_factory=list)
    dead: list[RefusedRow] = field(default_factory=list)
    stopped: StopCounts = field(default_factory=lambda: StopCounts(expected=0, stopped=0))
    caught_up: bool = True

    def stops(self, scope: str, since_ms: int) -> StopCounts:
        return self.stopped

    def runs_in_scope(self, scope: str) -> int:
        return self.counts.get(scope, 0)

    def run(self, run_id: str) -> LiveRun | None:
        return self.runs.get(run_id)

    def decisions(self, filter_: DecisionFilter, /, *, limit: int = 200) -> tuple[DecisionRow, ...]:
        wanted = {name: value for name in ("run_id", "code") if (value := getattr(filter_, name))}
        found = (row for row in self.decided if all(getattr(row, name) == value for name, value in wanted.items()))
        return tuple(found)[:limit]

    def refused(self, *, limit: int = 200) -> tuple[RefusedRow, ...]:
        return tuple(self.dead[:limit])

    def commands(self, *, standing: bool) -> tuple[CommandRow, ...]:
        return tuple(row for row in self.seen if not standing or row.state == "standing")


class Served:
    """A page that listens, and how to get at it."""

    def __init__(self, access: Access, commands: PageCommands, model: FewRuns) -> None:
        self.access = access
        self.commands = commands
        self.model = model
        self.changes = 0
        self.origin = ""
        self.port = 0

    def app(self) -> web.Application:
        app = web.Application()
        self.access.install(app)
        app.add_routes(command_routes(self.commands, layout))
        app.add_routes([web.get("/", self._home), web.post("/change", self._change), web.get("/events", self._events)])
        app.router.add_put("/put", self._change)
        app.router.add_get("/runs/{run:(?s:.+)}", self._run)
        return app

    async def _home(self, request: web.Request) -> web.Response:
        return layout("Home", tag("p", "home"), request)

    async def _change(self, _request: web.Request) -> web.Response:
        self.changes += 1
        return web.Response(text="changed")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": open\n\n")
        return response

    async def _run(self, request: web.Request) -> web.Response:
        scope = f"run:{request.match_info['run']}"
        form = command_form(session_of(request), scope, ("halt", "resume"), commands=self.commands)
        return layout("Run", tag("p", "a run") + form, request)


@asynccontextmanager
async def serving(
    options: AccessOptions | None = None,
    *,
    settings: Settings | None = None,
    model: FewRuns | None = None,
    commands: bool = False,
    now: Callable[[], float] | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Served]:
    """Serve a page for a while."""
    settings = settings or Settings(command_key=KEY)
    model = model or FewRuns()
    clock = {} if now is None else {"now": now}
    access = build_access(options or AccessOptions(), settings, layout, **clock)
    served = Served(access, PageCommands(settings, model, lambda: model.caught_up, enabled=commands), model)
    runner = web.AppRunner(served.app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        served.port = runner.addresses[0][1]
        access.listens_on(served.port)
        served.origin = f"http://127.0.0.1:{served.port}"
        yield served
    finally:
        await runner.cleanup()
        await served.commands.close()


class Browser:
    """Requests as a browser sends them; every header can be another one, as an attacker's program would have it."""

    def __init__(self, served: Served, origin: str = "") -> None:
        self.served = served
        self.origin = origin or served.access.address.origins[0]
        self.cookies: dict[str, str] = {}

    async def __aenter__(self) -> Browser:
        self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def request(self, method: str, path: str, headers: dict[str, str | None], data: Any = None) -> Answer:
        own = {"Host": self.origin.partition("://")[2], "Accept": "text/html", "Sec-Fetch-Mode": "navigate"}
        if self.cookies:
            own["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {name: value for name, value in (own | headers).items() if value is not None}
        url = f"http://127.0.0.1:{self.served.port}{path}"
        async with self._http.request(
            method, yarl.URL(url, encoded=True), headers=sent, data=data, allow_redirects=False
        ) as got:
            for name, morsel in got.cookies.items():
                if morsel.value and morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value
                else:
                    self.cookies.pop(name, None)
            return Answer(got.status, await got.text(), got.headers.copy())

    async def get(self, path: str, **headers: str | None) -> Answer:
        """Open an address."""
        return await self.request("GET", path, {"Sec-Fetch-Site": "none"} | named(headers))

    async def post(self, path: str, fields: dict[str, str], **headers: str | None) -> Answer:
        """Send a form of our own page."""
        own = {"Sec-Fetch-Site": "same-origin", "Origin": self.origin}
        return await self.request("POST", path, own | named(headers), fields)

    async def log_in_with_token(self) -> Answer:
        """Open the printed address and send its form."""
        page = await self.get(self.served.access.address_hint().removeprefix(self.served.access.address.origins[0]))
        return await self.post("/login/loopback", page.fields())

    async def log_in_with_token_while_logged_in(self) -> Answer:
        """Send the form of another token with the cookie of the session."""
        kept, self.cookies = self.cookies, {}
        page = await self.get(self.served.access.address_hint().removeprefix(self.served.access.address.origins[0]))
        self.cookies = kept
        return await self.post("/login/loopback", page.fields())

    async def csrf(self) -> str:
        """The token of the session's forms."""
        found = re.search(r'<meta name="csrf" content="([^"]+)"', (await self.get("/")).text)
        assert found is not None
        return found[1]


def named(headers: dict[str, str | None]) -> dict[str, str | None]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Answer:
    """What a page answered."""

    status: int
    text: str
    headers: Any

    @property
    def location(self) -> str:
        """Where it sends the browser."""
        return str(self.headers.get("Location", ""))

    def forms(self) -> list[dict[str, str]]:
        """The fields of each form, with the text that is in them."""
        return [
            {
                unescape(name[1]): unescape(value[1]) if (value := re.search(r' value="([^"]*)"', one)) else ""
                for one in re.findall(r"<input[^>]*>", form)
                if (name := re.search(r' name="([^"]*)"', one))
            }
            for form in re.findall(r"<form.*?</form>", self.text, re.DOTALL)
        ]

    def fields(self, verb: str = "") -> dict[str, str]:
        """The fields of the only form, or of the one of a command."""
        [found] = [form for form in self.forms() if not verb or form.get("verb") == verb]
        return found
