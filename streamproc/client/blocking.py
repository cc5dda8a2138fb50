"""Publisher and listener for code without asyncio: each runs its asyncio twin in a thread of its own.

The threads are daemons; what is still open when the interpreter exits is closed, within the stated time. They do
not survive `os.fork`: open publishers and listeners in the child (a worker's start-up hook), not before forking.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from streamproc.client.background import Background
from streamproc.client.guard import NO_PAYER
from streamproc.client.listener import HaltListener
from streamproc.client.publisher import TurnPublisher
from streamproc.errors import Undelivered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.client.admission.admission import PayerFields
    from streamproc.client.admission.blocking import BlockingAdmission, BlockingPayer, BlockingReservation
    from streamproc.client.admission.reservation import ReserveFields
    from streamproc.client.encoding import Encoded
    from streamproc.client.fields import EventFields, NodeFields, RunStartedFields, TurnFields
    from streamproc.client.guard import Register
    from streamproc.errors import Unavailable
    from streamproc.fleet.state import Fleet
    from streamproc.model.controls import ControlEvent
    from streamproc.model.raw_events import RawEvent
    from streamproc.settings import Settings


class BlockingTurnPublisher:
    """`TurnPublisher` for blocking code: the same options, bounds and counters, from any number of threads.

    A call checks and fingerprints in the caller's thread and returns; a background thread talks to Kafka.
    """

    def __init__(self, brokers: str | None = None, *, settings: Settings | None = None, **options: Any) -> None:
        self._turns = TurnPublisher(brokers, settings=settings, **options)
        self._background: Background | None = None
        self._handed: deque[Encoded] = deque()
        self._collecting = False
        self._closed = False

    @property
    def delivered(self) -> int:
        """Events that the broker acknowledged."""
        return self._turns.delivered

    @property
    def dropped(self) -> int:
        """Events lost: the buffer was full, the broker refused them, or they were left over at closing."""
        return self._turns.dropped

    @property
    def invalid(self) -> int:
        """Events that could not be used."""
        return self._turns.invalid

    @property
    def waiting(self) -> int:
        """Events that the broker has not acknowledged yet."""
        return self._turns.waiting + len(self._handed)

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being delivered; None while all is well."""
        return self._turns.trouble

    def turn(self, *, run_id: str, node: str, **fields: Unpack[TurnFields]) -> str:
        """What one node did. Returns the event's id. Raises `InvalidEvent`, as `TurnPublisher` does."""
        return self.send({"type": "turn", "run_id": run_id, "node": node, **fields})

    def run_started(self, *, run_id: str, **fields: Unpack[RunStartedFields]) -> str:
        """A run begins: its graph, its budgets, its scope. Raises `UnsafeCycle`, as `TurnPublisher` does."""
        return self.send({"type": "run.started", "run_id": run_id, **fields})

    def turn_started(self, *, run_id: str, node: str, **fields: Unpack[EventFields]) -> str:
        """A node begins a turn: should it never end, it is missed (BUDGET001, STALL007)."""
        return self.send({"type": "turn.started", "run_id": run_id, "node": node, **fields})

    def run_finished(self, *, run_id: str, status: str = "", **fields: Unpack[EventFields]) -> str:
        """A run ended by itself."""
        return self.send({"type": "run.finished", "run_id": run_id, "status": status, **fields})

    def user_message(self, *, run_id: str, **fields: Unpack[NodeFields]) -> str:
        """A person spoke: streaks that assume that nobody did start again."""
        return self.send({"type": "user.message", "run_id": run_id, **fields})

    def operator_stop(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> str:
        """A person orders this run to stop."""
        return self.send({"type": "operator.stop", "run_id": run_id, "by": by, "reason": reason, **fields})

    def operator_resume(
        self,
        *,
        run_id: str,
        grant: Mapping[str, Any] | None = None,
        by: str = "",
        reason: str = "",
        **fields: Unpack[EventFields],
    ) -> str:
        """A person lets a halted run go on; `grant` adds to its budgets: ``{"turns": 10, "cost": "0.50"}``."""
        own = {"grant": grant, "by": by, "reason": reason}
        return self.send({"type": "operator.resume", "run_id": run_id, **own, **fields})

    def halt_acknowledged(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> str:
        """Somebody has taken note of the run's halt, and takes care of it: it need not be escalated."""
        return self.send({"type": "halt.acknowledged", "run_id": run_id, "by": by, "reason": reason, **fields})

    def event(self, kind: str, /, *, run_id: str, **fields: Any) -> str:
        """An event of any type, such as ``task.created``, with its own fields."""
        return self.send({**fields, "type": kind, "run_id": run_id})

    def send(self, event: RawEvent | Mapping[str, Any]) -> str:
        """An event as it stands in a JSONL, or one that `streamproc.model.raw_events` has read already."""
        background = self._opened()
        encoded = self._turns.prepared(event)
        if encoded is None:
            return ""
        if self._closed:
            self._turns.admit(encoded)  # which counts it
            return encoded.event_id
        if not self._turns.goes_on(encoded, len(self._handed)):
            background.call(self._room(encoded))
        self._handed.append(encoded)
        if not self._collecting:
            self._collecting = True
            background.soon(self._collect)
        return encoded.event_id

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything published so far is acknowledged (or dropped). False where that took too long."""
        background = self._opened()
        return not self.waiting if self._closed else background.call(self._flush(timeout_s))

    def start(self) -> None:
        """Begin to connect in the background. Returns at once, also when the broker is away."""
        if self._background is not None:
            raise RuntimeError("a BlockingTurnPublisher is started once: make a new one")
        self._background = Background("streamproc turns")
        self._background.call(self._turns.start())
        atexit.register(self.close)

    def close(self) -> None:
        """Deliver what is left, for at most `close_timeout_s`. Raises `Undelivered` only where that was asked for."""
        background = self._background
        if background is None or self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            background.call(self._finish())
        finally:
            background.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Undelivered:
            if error is None:
                raise  # else it must not hide why the body failed

    def _opened(self) -> Background:
        if self._background is None:
            raise RuntimeError("this BlockingTurnPublisher is not open: use `with BlockingTurnPublisher() as turns:`")
        return self._background

    # On the loop's thread.

    def _collect(self) -> None:
        self._collecting = False  # before looking: whoever hands something over from now on calls again
        while self._handed:
            self._turns.admit(self._handed.popleft())

    async def _room(self, encoded: Encoded) -> None:
        self._collect()
        await self._turns.room(encoded)

    async def _flush(self, timeout_s: float) -> bool:
        self._collect()
        return await self._turns.flush(timeout_s)

    async def _finish(self) -> None:
        self._collect()
        await self._turns.close()


class BlockingGuard:
    """Guards one run in blocking code, which nobody can interrupt from outside: `Halted` is raised at the entry, by
    `check`, `ready` and `sleep` in between, and at the exit. While the fleet is paused, the entry waits."""

    def __init__(
        self,
        run_id: str,
        halts: HaltListener,
        register: Register,
        payer: BlockingPayer | None = None,
        *,
        user: str = "",
        tenant: str = "",
    ) -> None:
        self.run_id = run_id
        self._halts = halts
        self._register = register
        self._payer = payer
        self._scope = user, tenant
        self._fired = threading.Event()

    def check(self) -> None:
        """Raise `Halted` if the run is halted, its user or tenant killed, or the fleet stopped. No I/O."""
        halted = self._halts.error(self.run_id, *self._scope)
        if halted is not None:
            raise halted

    def ready(self, timeout_s: float | None = None) -> bool:
        """Call it before a task, a write or a delegation: waits while the fleet is paused, and raises `Halted` as
        `check` does. False where it is still paused after `timeout_s`."""
        return self._halts.obedience.wait_blocking(self.run_id, self.check, timeout_s)

    def reserve(self, **estimate: Unpack[ReserveFields]) -> BlockingReservation:
        """``with guard.reserve(cost_usd="0.05", tokens=4000) as hold:``, as `Guard.reserve`."""
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.reserve(self.check, **estimate)

    def sleep(self, seconds: float) -> None:
        """Wait, but raise `Halted` as soon as the run is halted."""
        self.check()
        self._fired.wait(seconds)
        self.check()

    def fire(self) -> None:
        """Look whether the run must stop. (The listener calls this.)"""
        if self._halts.error(self.run_id, *self._scope) is not None:
            self._fired.set()

    def __enter__(self) -> Self:
        self._register.add(self.run_id, self)
        try:
            self.ready()  # to enter is to begin something
        except BaseException:
            self._register.remove(self.run_id, self)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._register.remove(self.run_id, self)
        if error is None or isinstance(error, Exception):  # whatever failed: a halted run must not be tried again
            self.check()


class BlockingHaltListener:
    """`HaltListener` for blocking code: the same options, from any number of threads."""

    def __init__(self, brokers: str | None = None, *, settings: Settings | None = None, **options: Any) -> None:
        self._halts = HaltListener(brokers, settings=settings, **options)
        self._background: Background | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether halts are being heard."""
        return self._halts.connected

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being heard; None while all is well."""
        return self._halts.trouble

    @property
    def caught_up(self) -> bool:
        """Whether every earlier halt is known."""
        return self._halts.caught_up.is_set()

    @property
    def fleet(self) -> Fleet:
        """The standing orders: ``fleet.status``, ``fleet.order``."""
        return self._halts.fleet

    def check(self, run_id: str) -> None:
        """Raise `Halted` if the run is halted, or the fleet stopped. No I/O; well under a microsecond."""
        self._halts.check(run_id)

    def halted(self, run_id: str) -> ControlEvent | None:
        """The decision that halted the run; None where it is not halted (see `HaltListener.halted`)."""
        return self._halts.halted(run_id)

    def guard(
        self, run_id: str, admission: BlockingAdmission | None = None, **payer: Unpack[PayerFields]
    ) -> BlockingGuard:
        """``with halts.guard(run_id) as guard:`` raises `Halted` at its entry, at ``guard.check()`` and at its exit."""
        paying = None if admission is None else admission.payer(run_id, **payer)
        user, tenant = payer.get("user") or "", payer.get("tenant") or ""
        return BlockingGuard(run_id, self._halts, self._halts.register, paying, user=user, tenant=tenant)

    def start(self) -> None:
        """Begin to listen. Raises `Unavailable` (unless ``wait=False``) where the broker or its topics are away."""
        if self._background is not None:
            raise RuntimeError("a BlockingHaltListener is started once: make a new one")
        self._background = Background("streamproc halts")
        atexit.register(self.close)
        try:
            self._background.call(self._halts.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening. What is known to be halted can still be asked for."""
        background = self._background
        if background is None or self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            background.call(self._halts.close())
        finally:
            background.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
