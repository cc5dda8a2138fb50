"""The HTTP interface of `streamproc up`: hooks of coding CLIs, turns in any language, and what is known of runs.

On the unix socket, which only this user can open, no token is asked for. On a port, each request needs the
token, and names this machine as its host: a page in a browser can do neither.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
import orjson
from aiohttp import web

from streamproc.errors import InvalidEvent, StreamprocError, Unavailable, shown
from streamproc.live.judge import BaseJudge, DecisionRecord, Judge, stored_id
from streamproc.live.kills import CommandRequest
from streamproc.live.sessions import SESSIONS_MAX, CliSessions
from streamproc.live.store import CONTROL, LiveLog
from streamproc.model.newest import Newest
from streamproc.model.wire import Event

BODY_BYTES_MAX: Final = 16_777_216  # a hook carries the whole answer of a tool
TURNS_MAX: Final = 1_000  # of one request
VALUES_MAX: Final = 200_000  # of one request: reading each takes up to 5 µs, and everyone waits
SIGNS: Final = (b"{", b"[", b",")  # before each value but the first of an object or a list
RUNS_SHOWN: Final = 200
POSITION_DIGITS: Final = 18  # more than any position has
BEAT_S: Final = 15.0  # without a decision; then a client that follows them gets a comment
INTERRUPT: Final = "X-Streamproc-Interrupt"  # names the program that the hook interrupts
TAG: Final = "X-Streamproc-Tag"
SCOPE: Final = "X-Streamproc-Scope"

log = logging.getLogger(__name__)
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # also one that does not end
OwnJudge = TypeVar("OwnJudge", bound=BaseJudge)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BaseServer(ABC, Generic[OwnJudge]):
    """The routes, wherever it is judged."""

    def __init__(self, judge: OwnJudge, sessions: CliSessions, *, began_ms: int) -> None:
        self.judge, self._sessions, self._began_ms = judge, sessions, began_ms
        self._scopes: Newest[str, str] = Newest(SESSIONS_MAX)  # whose hooks speak for a session

    def app(self, token: str | None = None) -> web.Application:
        """Return the application for the socket, or for a port, where the `token` is asked for."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_errors])
        if token is not None:
            app.middlewares.append(_with_token(token))
        app.add_routes([
            web.post("/v1/hooks/{cli}", self._hook),
            web.post("/v1/turns", self._turns),
            web.post("/v1/decide", self._decide),
            web.post("/v1/commands", self._commands),
            web.get("/v1/decisions", self._decisions),
            web.get("/v1/runs", self._runs),
            web.get("/v1/runs/{run:.+}", self._run),
            web.get("/v1/sessions", self._shown_sessions),
            web.get("/v1/health", self._health),
        ])  # fmt: skip
        return app

    async def _hook(self, request: web.Request) -> web.StreamResponse:
        data = _json(await request.read())
        if not isinstance(data, dict):
            raise InvalidEvent("the body is no JSON object: send the event that the hook got")
        session, scope = data.get("session_id"), request.headers.get(SCOPE, "")
        if isinstance(session, str) and self._scopes.setdefault(stored_id(session), scope) != scope:
            return answer({})  # installed twice, for this user and for all: one of them counts
        found = self._sessions.answer(request.match_info["cli"], data, request.headers.get(TAG, ""))
        headers = {INTERRUPT: request.match_info["cli"]} if found.interrupt else None
        return answer(found.body, headers=headers)

    async def _events(self, request: web.Request) -> list[Event]:
        """Return the events of a request, fingerprinted."""
        data = _json(await request.read())
        raws = data if isinstance(data, list) else [data]
        if len(raws) > TURNS_MAX:
            raise InvalidEvent(f"{len(raws)} events in one request: send at most {TURNS_MAX}")
        return [self._event(raw, number) for number, raw in enumerate(raws)]

    def _event(self, raw: Any, number: int) -> Event:
        if not isinstance(raw, dict):
            raise InvalidEvent(f"[{number}]: is no JSON object: send a turn, or a list of turns")
        try:
            return self.judge.read(raw)
        except InvalidEvent as error:
            raise InvalidEvent(f"[{number}].{error}") from None

    async def _verdict(self, request: web.Request) -> dict[str, Any]:
        """Return whether the run of a request may go on."""
        data = _json(await request.read())
        run_id = data.get("run_id") if isinstance(data, dict) else None
        if not isinstance(run_id, str) or not run_id:
            raise InvalidEvent('run_id: is missing: send {"run_id": "…"}')
        if run_id != run_id.encode("utf-8", "replace").decode():  # half of a surrogate pair
            raise InvalidEvent(f"run_id: not valid Unicode text, got {shown(run_id)}: send text that UTF-8 can write")
        halt = self.judge.halted(stored_id(run_id))
        return {"run_id": run_id, "allowed": halt is None, "halt": halt}

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        """Send decisions as they are made, as server-sent events: those after the last that a client has got, which it
        names when it connects again; else new ones."""
        run_id = stored_id(request.query["run"]) if "run" in request.query else ""
        last, newest = request.headers.get("Last-Event-ID", "")[:POSITION_DIGITS], self.judge.position
        position = int(last) if last.isascii() and last.isdigit() else newest
        position = position if position <= newest else 0  # that of a log which was moved aside
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        woken = asyncio.Event()

        def told(_: object) -> None:
            woken.set()

        self.judge.on_decisions.append(told)
        try:
            await response.prepare(request)
            while True:
                woken.clear()
                while found := self.judge.decisions_after(position):
                    position = found[-1].position
                    lines = [_sent(one) for one in found if run_id in ("", one.run_id)]
                    await response.write(b"".join(lines))
                try:
                    async with asyncio.timeout(BEAT_S):
                        await woken.wait()
                except TimeoutError:
                    await response.write(b":\n\n")  # finds out whether the client is still there
        finally:
            self.judge.on_decisions.remove(told)

    @abstractmethod
    async def _turns(self, request: web.Request) -> web.StreamResponse: ...

    @abstractmethod
    async def _decide(self, request: web.Request) -> web.StreamResponse: ...

    async def _commands(self, _: web.Request) -> web.StreamResponse:
        raise InvalidEvent("workers judge the runs of this machine: give them the command, with --brokers")

    @abstractmethod
    async def _runs(self, request: web.Request) -> web.StreamResponse: ...

    @abstractmethod
    async def _run(self, request: web.Request) -> web.StreamResponse: ...

    async def _shown_sessions(self, request: web.Request) -> web.StreamResponse:
        tag = request.query.get("tag", "")
        found = self._sessions.tagged(tag) if tag else list(self._sessions.known.values())
        return answer({"observe": self._sessions.observes(), "sessions": [one.as_json() for one in found]})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return answer(self._health_fields())

    def _health_fields(self) -> dict[str, Any]:
        return {"status": "ok", "began_ms": self._began_ms, "observe": self._sessions.observes()}


class LiveServer(BaseServer[Judge]):
    """The routes where this process judges."""

    def __init__(self, judge: Judge, sessions: CliSessions, stored: LiveLog, *, began_ms: int) -> None:
        super().__init__(judge, sessions, began_ms=began_ms)
        self._stored = stored

    async def _turns(self, request: web.Request) -> web.StreamResponse:
        events = await self._events(request)
        decisions = self.judge.feed(events, now_ms())
        return answer({"accepted": len(events), "event_ids": [one.event_id for one in events], "decisions": decisions})

    async def _decide(self, request: web.Request) -> web.StreamResponse:
        return answer(await self._verdict(request))

    async def _commands(self, request: web.Request) -> web.StreamResponse:
        try:
            command = msgspec.json.decode(await request.read(), type=CommandRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidEvent(f'{error}: send {{"status": "STOP", "scope": "session:…", "by": "…"}}') from None
        return answer({"decisions": self.judge.obey(command, now_ms())})

    async def _runs(self, _: web.Request) -> web.StreamResponse:
        runs = self._stored.runs(RUNS_SHOWN)
        return answer({"runs": [
            {"run_id": run.run_id, "heard_ms": run.heard_ms, "halt": msgspec.Raw(run.halt or b"null")} for run in runs
        ]})  # fmt: skip

    async def _run(self, request: web.Request) -> web.StreamResponse:
        run_id = stored_id(request.match_info["run"])
        status = self.judge.status(run_id)
        if status is None:
            raise web.HTTPNotFound(text=f"run {run_id!r} is not known")
        decisions = [msgspec.Raw(one.value) for one in self._stored.records(run_id) if one.role == CONTROL]
        return answer({"status": status, "decisions": decisions})

    def _health_fields(self) -> dict[str, Any]:
        return super()._health_fields() | {"policy": self.judge.policy.name}


def _sent(one: DecisionRecord) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (one.position, one.value)


def _json(body: bytes) -> Any:
    if _signs(body) > VALUES_MAX and _signs(_TEXT.sub(b"", body)) > VALUES_MAX:
        raise InvalidEvent(f"the body has more than {VALUES_MAX} values: send fewer events at a time, or shorter lists")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            return json.loads(body)  # halves of surrogate pairs, which JavaScript sends
        except (ValueError, RecursionError) as error:
            raise InvalidEvent(f"the body is no JSON ({error})") from None


def _signs(body: bytes) -> int:
    return sum(body.count(sign) for sign in SIGNS)


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, headers=headers, content_type="application/json")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer in JSON where a handler cannot."""
    try:
        return await handler(request)
    except InvalidEvent as error:
        return answer({"error": str(error)}, status=422)
    except Unavailable as error:
        log.error("%s", error)
        return answer({"error": str(error)}, status=503)
    except StreamprocError as error:
        return answer({"error": str(error)}, status=500)
    except web.HTTPException as error:
        return answer({"error": error.text or error.reason}, status=error.status)


def _with_token(token: str) -> Any:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, expected):
            return answer({"error": "Authorization: send `Bearer` and the token of this machine"}, status=401)
        return await handler(request)

    return check
