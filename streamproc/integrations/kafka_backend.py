"""Publisher and listener on Kafka: one of each in a process, for all watches that have the same settings."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from streamproc.client import BlockingHaltListener, BlockingTurnPublisher
from streamproc.client.background import Background
from streamproc.client.heartbeat_watch import OnUnwatched, check_on_unwatched
from streamproc.client.waits import Waits
from streamproc.errors import Halted, StreamprocError, TaskEnded
from streamproc.integrations.backends import Reporters, Warnings
from streamproc.kafka.session import client_settings
from streamproc.model.controls import ControlEvent, RunStatus
from streamproc.settings import Settings

CLOSE_TIMEOUT_S: Final = 5.0  # for what is under way when a watch closes that is not the last one


class SharedConnection:
    """A publisher, a listener, and the thread that both run in.

    Its users are held weakly: an adapter that is made for each run and never closed must not keep a connection that
    its last user closes. The interpreter's exit closes it otherwise.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.users: WeakSet[KafkaBackend] = WeakSet()
        self.pid = os.getpid()
        self.turns = BlockingTurnPublisher(settings=settings)
        self.halts = BlockingHaltListener(settings=settings, wait=False)
        self.warnings = Warnings(self._told)
        self.reporters = Reporters()
        self.halts.on_control(self.warnings.add)
        self._background = Background("streamproc watch")
        atexit.register(self.close)
        self.halts.start(self._background)
        self.turns.start(self._background)

    def _told(self, control: ControlEvent) -> None:
        for user in list(self.users):
            if user.told is not None:
                user.told(control)

    def close(self) -> None:
        """Deliver what is under way within the publisher's time, and disconnect. Known halts can still be queried."""
        if self.pid != os.getpid():
            return  # of the process that this one was forked from
        atexit.unregister(self.close)
        try:
            self.turns.close()
        finally:
            self.halts.close()
            self._background.stop()


_lock = threading.Lock()
_connections: list[SharedConnection] = []


def _join(backend: KafkaBackend, settings: Settings) -> SharedConnection:
    """Return the connection with these settings, opened if there is none; starting it waits for no broker."""
    with _lock:
        found = next((one for one in _connections if one.settings == settings), None)
        if found is None:
            found = SharedConnection(settings)
            _connections.append(found)
        found.users.add(backend)
        return found


def _leave(backend: KafkaBackend, connection: SharedConnection) -> None:
    with _lock:
        connection.users.discard(backend)
        is_last = not connection.users and connection in _connections
        if is_last:
            _connections.remove(connection)
    if is_last:
        connection.close()
    elif connection.pid == os.getpid():
        connection.turns.flush(CLOSE_TIMEOUT_S)


def _forget() -> None:
    """In a forked child: the connections and their threads are those of the parent."""
    _connections.clear()
    _lock.release()


# The lock is held during a fork, so that the list is whole in the child.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget)


class KafkaBackend:
    """The workers on Kafka. It connects at the first turn: an adapter may be made where a program is imported."""

    def __init__(
        self,
        brokers: str | None,
        on_unwatched: OnUnwatched | None = None,
        told: Callable[[ControlEvent], None] | None = None,
    ) -> None:
        self.told = told
        self._settings = client_settings(brokers, None)
        self._on_unwatched = check_on_unwatched(on_unwatched or self._settings.on_unwatched)
        self._connection: SharedConnection | None = None
        self._closed = False

    def feed(self, event: dict[str, Any]) -> None:
        connection = self._connected()
        connection.turns.send(event)
        if event["type"] == "run.finished":
            connection.halts.reports.ended(event["run_id"], halted=False)
        else:
            connection.halts.reports.entered(event["run_id"], once=True)

    def _connected(self) -> SharedConnection:
        if self._closed:
            raise RuntimeError("a turn came after Watch.close(): create a new Watch")
        connection = self._connection
        if connection is None or connection.pid != os.getpid():
            connection = self._connection = _join(self, self._settings)
        return connection

    def check(self, run_id: str, task: str = "") -> None:
        if self._connection is not None:
            try:
                self._connection.halts.check(run_id, task=task)
            except TaskEnded:
                raise
            except Halted:
                self._connection.halts.reports.ended(run_id, halted=True)
                raise

    def halted(self, run_id: str) -> ControlEvent | None:
        found = None if self._connection is None else self._connection.halts.halted(run_id)
        if found is not None and self._connection is not None:
            self._connection.halts.reports.ended(run_id, halted=True)
        return found

    def warning(self, run_id: str) -> ControlEvent | None:
        return None if self._connection is None else self._connection.warnings.take(run_id)

    def status(self, run_id: str) -> RunStatus | None:
        raise StreamprocError(f"the workers know the status of {run_id}: run `streamproc status`")

    def resume(self, run_id: str, **_: Any) -> None:
        raise StreamprocError(f"{run_id} is resumed for all its processes: run `streamproc resume`")

    def reporters(self) -> Reporters:
        return self._connected().reporters

    def enter(self, name: str, run_id: str, permit: str, *, wait: bool) -> str:
        gate = self._connected().halts.gate
        return gate.enter_blocking(name, run_id, lambda: self.check(run_id), wait=wait, timeout_s=None, retry=False).id

    async def enter_async(self, name: str, run_id: str, permit: str, *, wait: bool) -> str:
        gate = self._connected().halts.gate
        entered = await gate.enter(name, run_id, lambda: self.check(run_id), wait=wait, timeout_s=None, retry=False)
        return entered.id

    def called(self, event: dict[str, Any]) -> None:
        if event.get("permit") or event.get("status") or event.get("retryable"):  # else the turn of the answer says it
            self._connected().turns.send({"type": "model.called", **event})

    def waits(self, run_id: str) -> Waits | None:
        connection = self._connection
        if self._on_unwatched != "pause" or connection is None or connection.pid != os.getpid():
            return None
        return connection.halts.waits(run_id, "pause")

    def flush(self, timeout_s: float) -> bool:
        connection = self._connection
        return connection is None or connection.pid != os.getpid() or connection.turns.flush(timeout_s)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._connection is not None:
                _leave(self, self._connection)
