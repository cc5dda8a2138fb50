"""Publisher and listener for code without asyncio: their events and records pass through a background thread.

The threads are daemons. What is still open when the interpreter exits is closed, within the stated time. Threads do not
survive `os.fork`: open publishers and listeners in the child process (a worker's start-up hook), not before forking.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from streamproc.client.background import BlockingClient
from streamproc.client.guard import NO_GATE, NO_PAYER, BaseGuard
from streamproc.client.listener import BaseHaltListener
from streamproc.client.publisher import BaseTurnPublisher
from streamproc.errors import Undelivered
from streamproc.tracing.guard_spans import GuardSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamproc.client.admission.admission import PayerFields
    from streamproc.client.admission.births import Birth, BirthFields
    from streamproc.client.admission.blocking import BlockingAdmission, BlockingContext, BlockingPayer
    from streamproc.client.admission.reservation import Hold, ReserveFields
    from streamproc.client.encoding import Encoded
    from streamproc.client.guard import GuardRegistry
    from streamproc.client.guard_reports import GuardReports
    from streamproc.client.heartbeat_watch import OnUnwatched
    from streamproc.client.providers import ProviderGate, ProviderPermit
    from streamproc.client.waits import Waits
    from streamproc.errors import Halted
    from streamproc.model.raw_events import RawEvent
    from streamproc.settings import Settings

__all__ = ["BlockingGuard", "BlockingHaltListener", "BlockingTurnPublisher"]


class BlockingTurnPublisher(BaseTurnPublisher[str], BlockingClient):
    """`TurnPublisher` for blocking code: the same options, bounds and counters, from any number of threads.

    A call checks and fingerprints in the caller's thread, then returns; a background thread talks to Kafka.
    """

    thread_name = "streamproc turns"
    usage = "with BlockingTurnPublisher() as turns:"

    def __init__(self, brokers: str | None = None, *, settings: Settings | None = None, **options: Any) -> None:
        super().__init__(brokers, settings=settings, **options)
        self._queue: deque[Encoded] = deque()
        """Events for the loop's thread."""
        self._collecting = False

    @property
    def waiting(self) -> int:
        """Events that the broker has not acknowledged yet."""
        return super().waiting + len(self._queue)

    def send(self, event: RawEvent | Mapping[str, Any]) -> str:
        """Publish an event as a mapping, or one that `streamproc.model.raw_events` has parsed already."""
        background = self._started()
        encoded = self.prepare(event)
        if encoded is None:
            return ""
        if self.closed:
            self.admit(encoded)  # counts it as dropped
            return encoded.event_id
        if not self.can_admit(encoded, len(self._queue)):
            background.call(self.wait_for_space(encoded))
        self._queue.append(encoded)
        if not self._collecting:
            self._collecting = True
            background.call_soon(self._collect)
        return encoded.event_id

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything published so far is acknowledged (or dropped). Returns False after `timeout_s`."""
        background = self._started()
        return not self.waiting if self.closed else background.call(self._flush(timeout_s))

    def _send_resume(self, event: dict[str, Any]) -> str:
        return self.send(event | {"halt": asyncio.run(self._halt_of(event))})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Undelivered:
            if error is None:
                raise  # else it would hide the body's own error

    # On the loop's thread.

    def _collect(self) -> None:
        self._collecting = False  # before emptying the queue: a thread that appends from now on schedules another call
        while self._queue:
            self.admit(self._queue.popleft())

    async def wait_for_space(self, encoded: Encoded) -> None:
        """Wait for space in the buffer, for at most `block_ms_max`, with what was queued before in it."""
        self._collect()
        await super().wait_for_space(encoded)

    async def _flush(self, timeout_s: float) -> bool:
        self._collect()
        return await super()._flush(timeout_s)

    async def _close(self) -> None:
        self._collect()
        await super()._close()


class BlockingGuard(BaseGuard["BlockingPayer"]):
    """Guards one run in blocking code.

    A thread cannot be interrupted from outside, so `Halted` is raised at the entry, by `check`, `ready` and `sleep`
    inside the body, and at the exit. The entry waits as that of `Guard` does. It is a span as that is.
    """

    def __init__(
        self,
        run_id: str,
        registry: GuardRegistry,
        halted: Callable[[str], Halted | None],
        payer: BlockingPayer | None,
        waits: Waits,
        reports: GuardReports,
        gate: ProviderGate | None = None,
    ) -> None:
        super().__init__(run_id, registry, halted, payer, waits, reports, gate)
        self._run_waits = waits
        self._fired = threading.Event()

    def ready(self, timeout_s: float | None = None) -> bool:
        """Wait as `Guard.ready`; raise `Halted` as `check` does. Call it before a task, a write or a delegation.
        Returns False if the fleet is still paused, or no worker decides, after `timeout_s`."""
        return self._run_waits.ready_blocking(self.check, timeout_s)

    def reserve(self, **estimate: Unpack[ReserveFields]) -> BlockingContext[Hold]:
        """``with guard.reserve(cost_usd="0.05", tokens=4000) as hold:``, as `Guard.reserve`."""
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.reserve(partial(self._run_waits.watched_blocking, self.check), **estimate)

    def birth(self, child_run_id: str, **fields: Unpack[BirthFields]) -> BlockingContext[Birth]:
        """``with guard.birth("c1", prompt=prompt):``, as `Guard.birth`."""
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.birth(child_run_id, partial(self._run_waits.watched_blocking, self.check), **fields)

    def provider(
        self, name: str, *, wait: bool = True, timeout_s: float | None = None, retry: bool = False
    ) -> ProviderPermit:
        """Wait until this provider and model may be called, as `Guard.provider`."""
        if self._gate is None:
            raise RuntimeError(NO_GATE)
        return self._gate.enter_blocking(name, self.run_id, self.check, wait=wait, timeout_s=timeout_s, retry=retry)

    def sleep(self, seconds: float) -> None:
        """Sleep, but raise `Halted` as soon as the run is halted."""
        self.check()
        self._fired.wait(seconds)
        self.check()

    def fire(self) -> None:
        """Check whether the run must stop. (The listener calls this.)"""
        if self._halted(self.run_id) is not None:
            self._fired.set()

    def __enter__(self) -> Self:
        self._registry.add(self.run_id, self)
        span = GuardSpan(self.run_id)
        try:
            self.ready()  # entering starts new work
        except BaseException as error:
            self._registry.remove(self.run_id, self)
            self._entry_failed(span, error)
            raise
        self._entered(span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._registry.remove(self.run_id, self)
        halted = None
        if error is None or isinstance(error, Exception):  # whatever failed: a halted run must not be retried
            halted = self._halted(self.run_id)
        self._ended(halted or error, error, halted)
        if halted is not None:
            raise halted


class BlockingHaltListener(BaseHaltListener, BlockingClient):
    """`HaltListener` for blocking code: the same options, from any number of threads. It calls functions in its
    background thread."""

    thread_name = "streamproc halts"
    usage = "with BlockingHaltListener() as halts:"

    @property
    def caught_up(self) -> bool:
        """Whether every earlier halt is known."""
        return self._caught_up.is_set()

    def guard(
        self,
        run_id: str,
        admission: BlockingAdmission | None = None,
        *,
        task: str = "",
        agent: str = "",
        on_unwatched: OnUnwatched | None = None,
        **payer: Unpack[PayerFields],
    ) -> BlockingGuard:
        """``with halts.guard(run_id) as guard:`` raises `Halted` at its entry, at ``guard.check()`` and at its exit;
        with a `task` or an `agent` also `TaskEnded` (see `HaltListener.guard`)."""
        halted = self._halted_by(payer, task, agent)
        paying = None if admission is None else admission.payer(run_id, **payer)
        waits = self.waits(run_id, on_unwatched)
        return BlockingGuard(run_id, self.guards, halted, paying, waits, self.reports, self.gate)

    def provider(
        self, name: str, *, run_id: str = "", wait: bool = True, timeout_s: float | None = None, retry: bool = False
    ) -> ProviderPermit:
        """Wait until this provider and model may be called, as `HaltListener.provider` does."""
        check = self._check_of(run_id)
        return self.gate.enter_blocking(name, run_id, check, wait=wait, timeout_s=timeout_s, retry=retry)
