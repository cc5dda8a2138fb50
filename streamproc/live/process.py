"""The process of `streamproc up`: the log, the judge and the server, until it is stopped or no longer in use."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from streamproc.errors import InvalidSettings, Unavailable
from streamproc.live.judge import Judge
from streamproc.live.server import BaseServer, LiveServer, now_ms
from streamproc.live.sessions import CliSessions
from streamproc.live.store import LiveLog
from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.metrics.own_host import is_loopback
from streamproc.model.addresses import local_log

if TYPE_CHECKING:
    from pathlib import Path

    from streamproc.live.places import LivePlaces
    from streamproc.policy import Policy
    from streamproc.settings import Settings

CONNECTIONS_MAX: Final = 256  # of the socket, and of the port: a process may often open 1,024 files
TICK_S: Final = 60.0  # between two looks at idleness
LOOK_S: Final = 1.0  # the longest sleep between deadlines: a run that has begun since may have the first one
SHORT_S: Final = 0.1  # the shortest
JUMP_S: Final = 30.0  # between the two clocks: this machine has slept
GRACE_S: Final = 60.0  # after a sleep, before silence counts: sessions go on first
DAY_MS: Final = 86_400_000
SHUTDOWN_S: Final = 2.0
RETRY_S: Final = 5.0  # after a fault of the log
TOKEN_CHARS: Final = 43  # of 32 random bytes
CONCERNING: Final = tuple(
    f"STREAMPROC_{name}" for name in ("ENV_FILE", "BROKERS", "NOTIFY", "NOTIFY_FILE", "OTEL_TOKEN")
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What `streamproc up` was told. `idle_s`: end after so long without an open session; 0: never. `keep_days`: how
    long runs are kept. `listen`: a port on this machine, beside the socket; `otlp`: one for spans; empty: none."""

    observe: bool = False
    idle_s: float = 0.0
    keep_days: float = 30.0
    listen: str = ""
    otlp: str = ""


def settings_of(places: LivePlaces, environment: Mapping[str, str]) -> Settings | None:
    """Return the settings of the process; None if there are none that concern it: reading them takes memory, and most
    have none. Raises `InvalidSettings`."""
    if places.settings.exists():
        os.environ["STREAMPROC_ENV_FILE"] = os.environ.get("STREAMPROC_ENV_FILE") or str(places.settings)
    elif not any(environment.get(name) for name in CONCERNING):
        return None
    from streamproc.settings import load_settings

    return load_settings()


async def serve(
    places: LivePlaces,
    policy: Policy,
    options: LiveOptions,
    announce: Callable[[str], None],
    settings: Settings | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. `announce` gets where it listens. Raises `InvalidSettings` if it cannot, for
    instance because another one is running."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    places.make()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_only_one(places))
        if settings is not None and is_edge(settings):
            server, sessions = await _at_the_edge(stack, places, options, settings)
        else:
            server, sessions = await _judging(stack, places, policy, options, settings)
        runner = _runner(server.app(), own_names=False)
        stack.push_async_callback(runner.cleanup)
        places.socket.unlink(missing_ok=True)
        old = os.umask(0o177)
        try:
            await runner.listen_unix(str(places.socket))
        finally:
            os.umask(old)
        stack.callback(places.socket.unlink, missing_ok=True)
        announce(str(places.socket))
        if options.listen:
            announce(await _listen(stack, server, places, options.listen))
        if options.otlp:
            from streamproc.live.spans import receive

            token = "" if settings is None else settings.otel_token.get_secret_value()
            announce(await receive(stack, server.judge, options.otlp, token))
        waiting = asyncio.create_task(_end_when_idle(sessions, options.idle_s, stop))
        await stop.wait()
        waiting.cancel()
        log.info("stopping")


def is_edge(settings: Settings) -> bool:
    """Whether the settings name brokers, where workers decide."""
    return "brokers" in settings.model_fields_set and local_log(settings.brokers) is None


async def _judging(
    stack: contextlib.AsyncExitStack,
    places: LivePlaces,
    policy: Policy,
    options: LiveOptions,
    settings: Settings | None,
) -> tuple[BaseServer[Any], CliSessions]:
    """Judge here, with the log of the folder."""
    stored = LiveLog(places.log)
    stack.callback(stored.close)
    if stored.moved is not None:
        log.error("the log was damaged: it was moved to %s, and a new one begins", stored.moved)
    judge = Judge(policy, stored)
    sessions = CliSessions(judge, observes=lambda: options.observe or places.observes)
    if settings is not None and (settings.notify.get_secret_value() or settings.notify_file):
        await _notify(stack, judge, stored, settings, places.notified, sessions.observes)
    for task in (_keep(judge, stored, options), _checkpoint(stored)):
        stack.callback(asyncio.create_task(task).cancel)
    return LiveServer(judge, sessions, stored, began_ms=now_ms()), sessions


async def _at_the_edge(
    stack: contextlib.AsyncExitStack, places: LivePlaces, options: LiveOptions, settings: Settings
) -> tuple[BaseServer[Any], CliSessions]:
    """Pass turns on to Kafka, and obey the workers there."""
    from streamproc.live.edge import EdgeJudge, EdgeServer

    judge = await stack.enter_async_context(EdgeJudge(settings))
    log.info("turns go to %s, where workers judge them", settings.brokers)
    sessions = CliSessions(judge, observes=lambda: options.observe or places.observes)
    return EdgeServer(judge, sessions, places.faults, began_ms=now_ms()), sessions


async def _notify(
    stack: contextlib.AsyncExitStack,
    judge: Judge,
    stored: LiveLog,
    settings: Settings,
    mark: Path,
    pauses: Callable[[], bool],
) -> None:
    """Notify people of decisions until the stack is closed."""
    from streamproc.live.notifying import LogNotifier
    from streamproc.notify.notification_config import load_notification_config
    from streamproc.notify.notifier import NoticeLinks

    config = load_notification_config(settings.notify_file, settings.notify.get_secret_value().split())
    notifier = LogNotifier(stored, config, NoticeLinks(settings.page_url, settings.trace_url), mark, pauses)
    judge.on_decisions.append(lambda _: notifier.wake())
    running = asyncio.create_task(notifier.run(), name="streamproc notifications")

    async def stop() -> None:
        running.cancel()
        await asyncio.wait([running])

    stack.push_async_callback(stop)


async def _listen(stack: contextlib.AsyncExitStack, server: BaseServer[Any], places: LivePlaces, address: str) -> str:
    """Listen on a port of this machine, for requests with the token."""
    from streamproc.settings import read_address

    host = address.rpartition(":")[0]
    if not is_loopback(host.strip("[]")):
        raise InvalidSettings(
            f"--listen {address}: is no address of this machine alone, and the token would cross the network in plain "
            "text: name 127.0.0.1 and a port, and reach it from elsewhere through an SSH tunnel"
        )
    runner = _runner(server.app(token_of(places)))
    stack.push_async_callback(runner.cleanup)
    remedy = ": name 127.0.0.1 and a port"
    number = await runner.listen(*read_address(address, "--listen", "127.0.0.1:8415"), f"--listen {address}", remedy)
    return f"http://{host}:{number} (the token is in {places.token})"


def _runner(app: web.Application, *, own_names: bool = True) -> BoundedRunner:
    return BoundedRunner(
        app, connections_max=CONNECTIONS_MAX, of_address_max=0, own_names=own_names, shutdown_timeout=SHUTDOWN_S
    )


def token_of(places: LivePlaces) -> str:
    """Return the token of the port, made when it is first needed, or when the file has no whole one."""
    with os.fdopen(os.open(places.token, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as file:
        token = file.read().strip()
        if len(token) >= TOKEN_CHARS:
            return token
        token = secrets.token_urlsafe(32)
        file.seek(0)
        file.truncate()
        file.write(f"{token}\n")
    return token


async def _end_when_idle(sessions: CliSessions, idle_s: float, stop: asyncio.Event) -> None:
    """Stop when no session was open for so long; never for 0."""
    idle_since_s = time.monotonic()
    while idle_s:
        await asyncio.sleep(min(TICK_S, idle_s))
        if sessions.are_open():
            idle_since_s = time.monotonic()
        elif time.monotonic() - idle_since_s >= idle_s:
            log.info("no session for %.0f s", idle_s)
            stop.set()
            return


async def _keep(judge: Judge, stored: LiveLog, options: LiveOptions) -> None:
    """Decide when deadlines are reached, and forget old runs."""
    quiet_until_s, last, tidied_ms = 0.0, (time.time(), time.monotonic()), 0
    while True:
        now = time.time(), time.monotonic()
        if abs((now[0] - last[0]) - (now[1] - last[1])) > JUMP_S:
            quiet_until_s = now[1] + GRACE_S
        last, wait_s = now, RETRY_S
        try:
            if now[1] >= quiet_until_s:
                judge.expire(now_ms())
            if now_ms() - tidied_ms > DAY_MS / 24:
                tidied_ms = now_ms()
                judge.forget_before(tidied_ms - int(options.keep_days * DAY_MS))
            due_ms = stored.next_due_ms()
            wait_s = min(LOOK_S, max(SHORT_S, due_ms / 1000 - now[0])) if due_ms else LOOK_S
        except (Unavailable, sqlite3.Error) as error:
            log.error("deadlines wait: %s", error)
        except Exception:  # without this task, no silence would be noticed until the next start
            log.exception("deadlines wait: the log cannot be judged")
        await asyncio.sleep(wait_s)


async def _checkpoint(stored: LiveLog) -> None:
    """Copy what was committed into the file of the log, in a thread, so that no hook waits for the disk."""
    behind = asyncio.Event()
    stored.on_behind = behind.set
    while True:
        await behind.wait()
        behind.clear()
        try:
            await asyncio.to_thread(stored.checkpoint)
        except sqlite3.Error as error:
            log.warning("the log grows: %s", error)
            await asyncio.sleep(RETRY_S)


@contextlib.contextmanager
def _only_one(places: LivePlaces) -> Iterator[None]:
    """Be the one process that writes in this folder. Raises `InvalidSettings` if there is one."""
    with os.fdopen(os.open(places.lock, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidSettings(
                f"another `streamproc up` (process {file.read().strip() or '?'}) serves {places.socket}: "
                "stop it first, or set --data to another folder"
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
