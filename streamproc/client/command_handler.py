"""What a listener does with the orders it hears: it knows the standing ones, and wakes who must stop or may go on."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamproc.client.halts import ControlNews, Halt
from streamproc.core.decision import encode_decision
from streamproc.errors import Halted
from streamproc.fleet.command_events import state_event
from streamproc.fleet.issuing import apply_record
from streamproc.fleet.state import Fleet
from streamproc.model.controls import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamproc.client.guard import Register
    from streamproc.client.halts import Halts
    from streamproc.errors import InvalidEvent
    from streamproc.fleet.signing import Authority

log = logging.getLogger(__name__)

REFUSED_SHOWN_EVERY: Final = 1_000
REMEDY: Final = (
    "this process has no key to check orders with: set STREAMPROC_COMMAND_KEY as for the workers, or "
    "STREAMPROC_COMMAND_AUTH=channel where Kafka's ACLs say who may write to the commands topic"
)


class _Waiter:
    """Somebody who waits for the end of a pause."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.fire = wake


class CommandHandler:
    """The standing orders, and everybody who waits for them to change."""

    def __init__(self, halts: Halts, register: Register, authority: Authority) -> None:
        self.fleet = Fleet()
        self.refused = 0
        """Orders that did not count."""
        self._halts = halts
        self._register = register
        self._authority = authority
        self._waiting: set[_Waiter] = set()

    def hear(self, key: bytes | None, value: bytes | None, taken_ms: int) -> None:
        """Take in a record of the commands topic; `taken_ms` is when the broker took it."""
        order = apply_record(self.fleet, self._authority, key, value, taken_ms, self._refuse)
        if order is None:
            return
        if order.part == "run":  # a halt like others: what the run's status says later is newer
            decision = state_event(order, order.name)
            halt = Halt(encode_decision(decision), decision.code, taken_ms)
            self._halts.control(ControlNews(order.name, taken_ms, decision.id, halt, resumes=False))
            self._register.fire(order.name)
        else:
            log.warning("%s", order)
            if order.status == "STOP":
                self._register.fire_all()
        for waiter in tuple(self._waiting):
            waiter.fire()

    def halted(self, run_id: str, user: str, tenant: str) -> Halted | None:
        """Why a run of this user and tenant must stop, as far as orders go."""
        order = self.fleet.stopping(user, tenant)
        return None if order is None else Halted(run_id, public(state_event(order, run_id)))

    async def wait(self, run_id: str, check: Callable[[], None]) -> None:
        """Wait while the fleet is paused; `check` raises as soon as the run must stop."""
        check()
        while self.fleet.paused:
            woken = asyncio.Event()
            with self._woken(run_id, woken.set):
                check()  # what came before we were heard of
                if self.fleet.paused:
                    self._tell(run_id)
                    await woken.wait()
            check()

    def wait_blocking(self, run_id: str, check: Callable[[], None], timeout_s: float | None) -> bool:
        """The same for a thread; False where it was paused for longer than `timeout_s`."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        check()
        while self.fleet.paused:
            woken = threading.Event()
            with self._woken(run_id, woken.set):
                check()
                if self.fleet.paused:
                    self._tell(run_id)
                    if not woken.wait(None if until is None else max(0.0, until - time.monotonic())):
                        return False
            check()
        return True

    @contextmanager
    def _woken(self, run_id: str, wake: Callable[[], None]) -> Iterator[None]:
        """`wake` is called when an order comes, and when the run is halted."""
        waiter = _Waiter(wake)
        self._waiting.add(waiter)
        self._register.add(run_id, waiter)
        try:
            yield
        finally:
            self._register.remove(run_id, waiter)
            self._waiting.discard(waiter)

    def _tell(self, run_id: str) -> None:
        log.info("run %s waits: %s", run_id, self.fleet.order)

    def _refuse(self, problem: InvalidEvent) -> None:
        self.refused += 1
        if self.refused % REFUSED_SHOWN_EVERY == 1:
            why = str(problem) if self._authority.can_sign else f"{problem}; {REMEDY}"
            log.warning("an order was refused (%d so far): %s", self.refused, why)
