"""Reports of guards: which runs this process watches, and that it has stopped them, so that a command can be followed.

They go to the turns topic by a connection of their own, which is opened when a guard has watched a run for a moment or
has stopped one. They never delay a guard: what cannot be sent is dropped, and who may not write to the topic reports
nothing. Where the workers' policy asks for it, the report that a run has stopped has excerpts of its last turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from streamproc.client.recent_texts import RECENT
from streamproc.errors import AccessDenied, StreamprocError
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.session import run_in_own_task
from streamproc.model.guard_report import GuardState, encode_guard_report
from streamproc.model.newest import Newest
from streamproc.model.redaction import redact_id
from streamproc.settings import Settings

log = logging.getLogger(__name__)

WATCHED_S: Final = 2.0  # before a guard says that it watches: shorter ones need not be followed
AGAIN_S: Final = 1_800.0  # between two such reports: readers look a day back
STOPPED_AGAIN_S: Final = 1.0
RUNS_MAX: Final = 10_000  # that are watched; of more, the oldest are not reported
QUEUE_MAX: Final = 10_000  # reports that wait for the broker; of more, the oldest are dropped
RETRY_S: Final = 5.0
CLOSE_S: Final = 1.0  # for what is under way
REQUEST_TIMEOUT_MS: Final = 5_000
LINGER_MS: Final = 100  # guards that stop together report in one request: the next halt comes first


class _Watched:
    """A run that is watched here: by how many guards, and when that is reported next."""

    __slots__ = ("due_s", "guards", "told")

    def __init__(self) -> None:
        self.guards, self.told, self.due_s = 0, False, time.monotonic() + WATCHED_S


class GuardReports:
    """The reports of one listener. `entered` and `ended` may be called from any thread, and do no I/O."""

    def __init__(self, settings: Settings, *, enabled: bool) -> None:
        self.enabled = enabled and not settings.shadow
        self.sent = 0
        """Reports that the broker has stored."""
        self._settings = settings
        self._pid = os.getpid()
        self._host = f"{socket.gethostname()}/{self._pid}"
        self._lock = threading.Lock()
        self._watched: Newest[str, _Watched] = Newest(RUNS_MAX)
        self._stopped: Newest[str, float] = Newest(RUNS_MAX)
        self._queue: deque[tuple[str, GuardState]] = deque(maxlen=QUEUE_MAX)
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._producer: AIOKafkaProducer | None = None

    def entered(self, run_id: str, *, once: bool = False) -> None:
        """Note that a guard watches a run from now on; with `once`, that a program does, which may say so again."""
        if self._loop is None or os.getpid() != self._pid:  # of a fork: its locks may be held for ever
            return
        with self._lock:
            known = self._watched.get(run_id)
            if known is None:
                known = self._watched[run_id] = _Watched()
            elif once:
                return
            known.guards += 1
        self._awake()

    def ended(self, run_id: str, *, halted: bool) -> None:
        """Note that a guard watches a run no longer. The last one of a halted run reports that it has stopped."""
        if self._loop is None or os.getpid() != self._pid:  # of a fork: its locks may be held for ever
            return
        with self._lock:
            known = self._watched.get(run_id)
            if known is not None:
                known.guards -= 1
                if known.guards > 0:
                    return
                del self._watched[run_id]
            told = known is not None and known.told
            if halted and (told or self._may_repeat(run_id)):
                self._queue.append((run_id, "stopped"))
            elif not halted and told:
                self._queue.append((run_id, "left"))
        self._awake()

    def start(self) -> None:
        """Begin to send, in this event loop."""
        if self.enabled:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(self._run(), name="streamproc guard reports")

    async def close(self) -> None:
        """Send what is known of halted runs, for a second at most, and disconnect."""
        self._loop = None
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError, KafkaError, OSError, StreamprocError):
            async with asyncio.timeout(CLOSE_S):
                await self._send()
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._disconnect()

    def _may_repeat(self, run_id: str) -> bool:
        """Return whether to report again that a run has stopped: a program may ask about it in a loop."""
        now_s = time.monotonic()
        if now_s - self._stopped.get(run_id, -STOPPED_AGAIN_S) < STOPPED_AGAIN_S:
            return False
        self._stopped[run_id] = now_s
        return True

    def _awake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._take_due()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._send()
            except (AccessDenied, TopicAuthorizationFailedError) as problem:
                log.info("guards report nothing: this client may not write to the turns topic (%s)", problem)
                self._loop = None
                await self._disconnect()
                return
            except (KafkaError, OSError, StreamprocError) as problem:
                log.debug("a guard's reports wait for the broker: %s", problem)
                await self._disconnect()
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    def _take_due(self) -> float | None:
        """Queue what is due; return the seconds until more is. None: nothing is watched."""
        now_s, next_s = time.monotonic(), None
        with self._lock:
            for run_id, known in self._watched.items():
                if known.due_s <= now_s:
                    self._queue.append((run_id, "watching"))
                    known.told, known.due_s = True, now_s + AGAIN_S
                next_s = known.due_s if next_s is None else min(next_s, known.due_s)
        if self._queue:
            return 0.0
        return None if next_s is None else max(0.0, next_s - now_s)

    async def _send(self) -> None:
        if not self._queue:
            return
        if self._producer is None:
            producer = AIOKafkaProducer(
                **connection_options(self._settings), acks=1, linger_ms=LINGER_MS, request_timeout_ms=REQUEST_TIMEOUT_MS
            )
            self._producer = producer
            await access.start(producer, self._settings)
        topic, sent = self._settings.topic("turns"), []
        while self._queue:
            run_id, state = self._queue[0]
            name = redact_id(run_id)
            excerpts = self._excerpts(name) if state == "stopped" else ""
            value = encode_guard_report(name, str(uuid.uuid4()), state, self._host, excerpts)
            sent.append(await self._producer.send(topic, value, name.encode("utf-8", "surrogatepass")))
            if self._queue and self._queue[0] == (run_id, state):  # else the full queue has dropped it
                self._queue.popleft()
            if excerpts:  # they are sent once
                RECENT.drop(self._settings, name)
        await asyncio.gather(*sent)
        self.sent += len(sent)

    def _excerpts(self, run_id: str) -> str:
        try:
            return RECENT.excerpts(self._settings, run_id)
        except Exception:  # texts of any shape: the report that the run has stopped matters more
            log.exception("no excerpts of run %r", run_id[:64])
            return ""

    async def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):  # it is abandoned: its errors do not matter
                await run_in_own_task(producer.stop(), CLOSE_S)
