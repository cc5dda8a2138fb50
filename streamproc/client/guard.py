"""`Guard`: cancels the body of an ``async with`` when its run is halted, and raises `Halted` out of it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from streamproc.errors import Halted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from streamproc.client.admission.admission import Payer
    from streamproc.client.admission.reservation import Reservation, ReserveFields

NO_PAYER = "this guard knows nobody who pays: ask for it with `halts.guard(run_id, admission)`"


class Guarded(Protocol):
    """What is told of a halt. `fire` comes on the listener's event loop, at most once for each halt."""

    def fire(self) -> None: ...


class Register:
    """Who guards which run."""

    def __init__(self) -> None:
        self._guards: dict[str, set[Guarded]] = {}

    def add(self, run_id: str, guard: Guarded) -> None:
        """`guard` wants to know when `run_id` is halted."""
        self._guards.setdefault(run_id, set()).add(guard)

    def remove(self, run_id: str, guard: Guarded) -> None:
        """`guard` is done."""
        guards = self._guards.get(run_id)
        if guards is not None:
            guards.discard(guard)
            if not guards:
                self._guards.pop(run_id, None)

    def fire(self, run_id: str) -> None:
        """Tell every guard of a run that it is halted."""
        for guard in tuple(self._guards.get(run_id, ())):
            guard.fire()

    def fire_all(self) -> None:
        """Tell every guard to look whether its run must stop."""
        for run_id in tuple(self._guards):
            self.fire(run_id)

    def __len__(self) -> int:
        return len(self._guards)


class Guard:
    """Guards one run, in one task, once. While the fleet is paused it waits at its entry, and at `ready`.

    It works as `asyncio.timeout` does: the task is cancelled from inside the body, its ``finally`` clauses run, and
    at the end of the ``async with`` the cancellation becomes `Halted`. A cancellation from elsewhere stays what it is,
    also when both come together. Where guards are nested, the outermost one of a halted run raises.
    """

    def __init__(
        self,
        run_id: str,
        register: Register,
        halted: Callable[[str], Halted | None],
        payer: Payer | None = None,
        pause: Callable[[str, Callable[[], None]], Awaitable[None]] | None = None,
    ) -> None:
        self.run_id = run_id
        self._pause = pause
        self._register = register
        self._halted = halted
        self._payer = payer
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cause: Halted | None = None

    def check(self) -> None:
        """Raise `Halted` if the run is halted. For a loop that computes for long and awaits nothing."""
        halted = self._halted(self.run_id)
        if halted is not None:
            raise halted

    async def ready(self) -> None:
        """Call it before a task, a write or a delegation: waits while the fleet is paused, and raises `Halted` if
        the run is halted or the fleet is stopped."""
        if self._pause is None:
            self.check()
        else:
            await self._pause(self.run_id, self.check)

    def reserve(self, **estimate: Unpack[ReserveFields]) -> Reservation:
        """``async with guard.reserve(cost_usd="0.05", tokens=4000) as hold:`` begins only if it can be paid for.

        Raises `Halted` if the run is halted, `Refused` if somebody cannot pay, and what else `Admission` says.
        """
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.reserve(self.check, **estimate)

    def fire(self) -> None:
        """The run is halted: cancel the body."""
        if self._task is None or self._cause is not None:
            return
        self._cause = self._halted(self.run_id)
        if self._cause is not None:
            self._task.cancel(f"streamproc: {self._cause}")

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError("a guard is used once: ask the listener for another")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a guard needs a task: run this under asyncio.run, or as a task")
        await self.ready()  # to enter is to begin something
        self._task = task
        self._cancelling = task.cancelling()
        self._register.add(self.run_id, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._register.remove(self.run_id, self)
        task, cause = self._task, self._cause
        if cause is None or task is None:
            return
        others = task.uncancel() > self._cancelling
        if isinstance(error, Halted) and error.run_id == self.run_id:
            return  # `check` was faster
        if others and isinstance(error, asyncio.CancelledError):
            return  # somebody else wants this task to end, too: theirs to handle
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            return
        raise cause from error
