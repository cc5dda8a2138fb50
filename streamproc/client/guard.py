"""`Guard`: cancels the body of an ``async with`` when its run is halted, and raises `Halted` out of it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar, Unpack

from streamproc.errors import Halted, TaskEnded
from streamproc.fleet.workers import WatchState
from streamproc.model.redaction import redact_id
from streamproc.tracing.guard_spans import GuardSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.client.admission.admission import Payer
    from streamproc.client.admission.births import Birth, BirthFields
    from streamproc.client.admission.reservation import Reservation, ReserveFields
    from streamproc.client.guard_reports import GuardReports
    from streamproc.client.providers import ProviderGate, ProviderPermit
    from streamproc.client.waits import Waits

PayerT = TypeVar("PayerT")

NO_GATE = "this guard has no listener: create it with `halts.guard(run_id)`"
NO_PAYER = "this guard has no payer: create it with `halts.guard(run_id, admission)`"


class HaltTarget(Protocol):
    """An object that reacts to a halt. `fire` is called on the listener's event loop, at most once for each halt."""

    def fire(self) -> None: ...


def _names(run_id: str) -> set[str]:
    """Return the ids under which a run may be halted: a publisher redacts a secret in it."""
    return {run_id, redact_id(run_id)}


class GuardRegistry:
    """The guards of each run."""

    def __init__(self) -> None:
        self._guards: dict[str, set[HaltTarget]] = {}

    def add(self, run_id: str, guard: HaltTarget) -> None:
        """Fire `guard` when `run_id` is halted."""
        for name in _names(run_id):
            self._guards.setdefault(name, set()).add(guard)

    def remove(self, run_id: str, guard: HaltTarget) -> None:
        """Stop firing `guard`."""
        for name in _names(run_id):
            guards = self._guards.get(name)
            if guards is not None:
                guards.discard(guard)
                if not guards:
                    self._guards.pop(name, None)

    def fire(self, run_id: str) -> None:
        """Fire every guard of a run: the run is halted."""
        for guard in tuple(self._guards.get(run_id, ())):
            guard.fire()

    def fire_all(self) -> None:
        """Fire every guard, so that each checks whether its run must stop."""
        for run_id in tuple(self._guards):
            self.fire(run_id)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._guards

    def __len__(self) -> int:
        return len(self._guards)


class BaseGuard(Generic[PayerT]):
    """What the guards of asyncio and of threads share. `halted` returns why a run must stop."""

    def __init__(
        self,
        run_id: str,
        registry: GuardRegistry,
        halted: Callable[[str], Halted | None],
        payer: PayerT | None = None,
        waits: Waits | None = None,
        reports: GuardReports | None = None,
        gate: ProviderGate | None = None,
    ) -> None:
        self._gate = gate
        self.run_id = run_id
        self._payer = payer
        self._reports = reports
        self._waits = waits
        self._registry = registry
        self._halted = halted
        self._span: GuardSpan | None = None

    def check(self) -> None:
        """Raise `Halted` if the run is halted, its user or tenant killed, or the fleet stopped. No I/O: for a loop that
        computes for a long time."""
        halted = self._halted(self.run_id)
        if halted is not None:
            raise halted

    @property
    def state(self) -> WatchState:
        """Whether workers decide on this run (see `HaltListener.state`)."""
        return WatchState("unknown") if self._waits is None else self._waits.state

    def _entry_failed(self, span: GuardSpan, error: BaseException) -> None:
        span.end(error)
        if self._reports is not None and halts_run(error, self.run_id):
            self._reports.ended(self.run_id, halted=True)

    def _entered(self, span: GuardSpan) -> None:
        self._span = span
        if self._reports is not None:
            self._reports.entered(self.run_id)

    def _ended(self, shown: BaseException | None, *causes: BaseException | None) -> None:
        """End the span with an error, and report whether the run was halted: by one of the causes."""
        if self._reports is not None:
            self._reports.ended(self.run_id, halted=any(halts_run(cause, self.run_id) for cause in causes))
        if self._span is not None:
            self._span.end(shown)


class Guard(BaseGuard["Payer"]):
    """Guards one run, in one task, once. While the fleet is paused, the guard waits at its entry and at `ready`; with
    ``on_unwatched="pause"`` also while no worker decides on the run.

    It works as `asyncio.timeout` does: the task is cancelled inside the body, its ``finally`` clauses run, and at the
    end of the ``async with`` the cancellation becomes `Halted`. A cancellation from elsewhere stays a cancellation,
    even if both happen together. Of nested guards, the outermost one of a halted run raises.

    If the program has set a tracer provider of OpenTelemetry, the body is a span, ``streamproc.guard RUN``.
    """

    _payer: Payer | None
    _task: asyncio.Task[object] | None = None
    _cancelling = 0
    _cause: Halted | None = None

    async def ready(self) -> None:
        """Wait while the fleet is paused, and with ``on_unwatched="pause"`` while no worker decides on the run; raise
        `Halted` if the run is halted or the fleet is stopped.

        Call it before a task, a write or a delegation.
        """
        if self._waits is None:
            self.check()
        else:
            await self._waits.ready(self.check)

    def reserve(self, **estimate: Unpack[ReserveFields]) -> Reservation:
        """``async with guard.reserve(cost_usd="0.05", tokens=4000) as hold:`` enters only if the budgets allow it.

        With ``on_unwatched="pause"`` it waits before that while no worker decides on the run.
        Raises `Halted` if the run is halted, `Refused` if an account lacks budget, and the other errors of `Admission`.
        """
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.reserve(self._may_spend, **estimate)

    def birth(self, child_run_id: str, **fields: Unpack[BirthFields]) -> Birth:
        """``async with guard.birth("c1", prompt=prompt):`` around a run that this one starts: it enters only if the
        session may have another run (see `Admission.birth`).

        Raises `Halted` if this run is halted or its session killed, `SpawnRefused` if a limit is reached, and
        `Unavailable`.
        """
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.birth(child_run_id, self._may_spend, **fields)

    async def provider(
        self, name: str, *, wait: bool = True, timeout_s: float | None = None, retry: bool = False
    ) -> ProviderPermit:
        """Wait until this provider and model may be called (see `HaltListener.provider`); raise `Halted` as `check`."""
        if self._gate is None:
            raise RuntimeError(NO_GATE)
        return await self._gate.enter(name, self.run_id, self.check, wait=wait, timeout_s=timeout_s, retry=retry)

    async def _may_spend(self) -> None:
        if self._waits is None:
            self.check()
        else:
            await self._waits.watched(self.check)

    def fire(self) -> None:
        """Cancel the body if the run is halted."""
        if self._task is None or self._cause is not None:
            return
        self._cause = self._halted(self.run_id)
        if self._cause is not None:
            self._task.cancel(f"streamproc: {self._cause}")

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError("a guard can be used only once: call `halts.guard()` again")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a guard needs a task: run this code with asyncio.run, or as a task")
        span = GuardSpan(self.run_id)
        try:
            await self.ready()  # entering starts new work
        except BaseException as error:
            self._entry_failed(span, error)
            raise
        self._task = task
        self._entered(span)
        self._cancelling = task.cancelling()
        self._registry.add(self.run_id, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._registry.remove(self.run_id, self)
        cause = self._raised_after(error)
        self._ended(cause or error, self._cause, error)
        if cause is not None:
            raise cause from error

    def _raised_after(self, error: BaseException | None) -> Halted | None:
        """Return the halt that the guard raises after its body has ended with this error; None: it raises nothing."""
        task, cause = self._task, self._cause
        if cause is None or task is None:
            return None
        others = task.uncancel() > self._cancelling
        if _is_of(error, self.run_id):
            return None  # `check` raised it already
        if others and isinstance(error, asyncio.CancelledError):
            return None  # another caller cancelled this task too: the cancellation is theirs to handle
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            return None
        return cause


def halts_run(error: BaseException | None, run_id: str) -> bool:
    """Return whether this is the halt of a run, not only the end of a task of it."""
    return _is_of(error, run_id) and not isinstance(error, TaskEnded)


def _is_of(error: BaseException | None, run_id: str) -> bool:
    return isinstance(error, Halted) and error.run_id == run_id
