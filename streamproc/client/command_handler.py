"""What a listener does with fleet commands: applies them, halts guards, and wakes those that wait out a pause."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from streamproc.client.guard import GuardRegistry
from streamproc.client.halt_records import ControlNews, Halt
from streamproc.client.halts import Halts
from streamproc.core.decision import encode_decision
from streamproc.errors import Halted, InvalidEvent
from streamproc.fleet.command_events import state_event
from streamproc.fleet.issuing import apply_record
from streamproc.fleet.signing import CommandSigner
from streamproc.fleet.state import Fleet

log = logging.getLogger(__name__)

REFUSED_SHOWN_EVERY: Final = 1_000
REMEDY: Final = (
    "this process has no key to verify commands with: set STREAMPROC_COMMAND_KEY as for the workers, or "
    "STREAMPROC_COMMAND_AUTH=channel if Kafka's ACLs restrict who writes to the commands topic"
)


class _Waiter:
    """A caller that waits for the end of a pause."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.fire = wake


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # its loop is closed, and nothing waits there
        loop.call_soon_threadsafe(woken.set)


def _log_wait(run_id: str, reason: str) -> bool:
    log.info("run %s waits: %s", run_id, reason)
    return True


class CommandHandler:
    """Keeps the standing commands, and wakes the callers that wait for them to change."""

    def __init__(self, halts: Halts, guards: GuardRegistry, signer: CommandSigner) -> None:
        self.fleet = Fleet()
        self.refused = 0
        """Commands that were refused."""
        self._halts = halts
        self._guards = guards
        self._signer = signer
        self._waiting: set[_Waiter] = set()

    def apply(self, key: bytes | None, value: bytes | None, appended_ms: int | None) -> None:
        """Apply a record of the commands topic; `appended_ms` is the broker's time of the record, if it has that."""
        command = apply_record(self.fleet, self._signer, key, value, appended_ms, self._refuse)
        if command is None or appended_ms is None:  # without the broker's time it is refused
            return
        if command.part == "run":  # a halt like any other: a later status of the run supersedes it
            decision = state_event(command, command.name)
            at_ms = command.order_ms if self._signer.required else appended_ms  # a copy has the broker's time, too
            halt = Halt(encode_decision(decision), decision.code, at_ms, command.at)
            self._halts.control(ControlNews(command.name, at_ms, decision.id, halt, resumes=False))
            self._guards.fire(command.name)
        else:
            log.warning("%s", command)
            if command.status == "STOP":
                self._guards.fire_all()
        self.wake()

    def halted(self, run_id: str, user: str, tenant: str, session: str = "") -> Halted | None:
        """Return the error if a command stops a run of this user, tenant and session; else None."""
        command = self.fleet.stopping(user, tenant, session or run_id)
        return None if command is None else Halted(run_id, state_event(command, run_id))

    def paused(self) -> str:
        """Return why no work may start; empty: it may."""
        return str(self.fleet.command) if self.fleet.paused else ""

    def wake(self) -> None:
        """Let everyone who waits look again."""
        for waiter in tuple(self._waiting):
            waiter.fire()

    async def wait(self, run_id: str, check: Callable[[], None], why: Callable[[], str] | None = None) -> None:
        """Wait while `why` returns a reason, by default while the fleet is paused; `check` raises as soon as the run
        must stop. The event loop may be another one than the listener's."""
        why, logged = why or self.paused, False
        check()
        loop = asyncio.get_running_loop()
        while why():
            woken = asyncio.Event()
            with self._registered(run_id, partial(_wake, loop, woken)):
                check()  # a command may have arrived before the registration
                if reason := why():
                    logged = logged or _log_wait(run_id, reason)
                    await woken.wait()
            check()

    def wait_blocking(
        self, run_id: str, check: Callable[[], None], timeout_s: float | None, why: Callable[[], str] | None = None
    ) -> bool:
        """Do the same in a thread. Returns False if there still is a reason after `timeout_s`."""
        why, logged = why or self.paused, False
        until = None if timeout_s is None else time.monotonic() + timeout_s
        check()
        while why():
            woken = threading.Event()
            with self._registered(run_id, woken.set):
                check()
                if reason := why():
                    logged = logged or _log_wait(run_id, reason)
                    if not woken.wait(None if until is None else max(0.0, until - time.monotonic())):
                        return False
            check()
        return True

    @contextmanager
    def _registered(self, run_id: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` on every command, and when the run is halted."""
        waiter = _Waiter(wake)
        self._waiting.add(waiter)
        self._guards.add(run_id, waiter)
        try:
            yield
        finally:
            self._guards.remove(run_id, waiter)
            self._waiting.discard(waiter)

    def _refuse(self, problem: InvalidEvent) -> None:
        self.refused += 1
        if self.refused % REFUSED_SHOWN_EVERY == 1:
            why = str(problem) if self._signer.can_verify else f"{problem}; {REMEDY}"
            log.warning("refused a command (%d so far): %s", self.refused, why)
