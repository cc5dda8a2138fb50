"""An event loop with virtual time and seeded order: the same seed always gives the same schedule.

Of the callbacks that are ready, one is chosen at random, so that tasks wake up in every possible order. Every callback
belongs to the process that started its task. A process can be killed between two of its callbacks (that is, at any
`await`), or frozen and continued.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

START_S: Final = 1_000.0
STEPS_MAX: Final = 200_000  # callbacks of one schedule: a hundred times what one needs; past it, something spins

_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Stuck(Exception):
    """Nothing will ever happen again, or it never ends."""


@dataclass(eq=False)
class Process:
    """Something that can be killed or frozen: its tasks, and what they have started."""

    name: str
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    dead: bool = False
    frozen: bool = False
    held: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.run(_process.set, self)


class Handle:
    """A callback to run. asyncio's handles can also be shown and debugged, which costs as much as the callback."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: contextvars.Context | None) -> None:
        self.callback = callback
        self.args = args
        self.context = context if context is not None else contextvars.copy_context()
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time, seeded order."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.steps = 0
        self.now_s = START_S
        self._ready: list[Handle] = []  # type: ignore[assignment]
        self._timers: list[tuple[float, int, Handle]] = []
        self._drawn = 0
        self.tasks: list[asyncio.Task[Any]] = []  # kept: what a killed process had under way must not be cleaned up
        self.next_strike: float = float("inf")
        """The step before which `strike` is called. It returns the next one."""
        self.strike: Callable[[int], float] = lambda _number: float("inf")
        self.set_task_factory(self._task)

    def _task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        return task

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """False, without a call into Python for each future."""

    def time(self) -> float:
        return self.now_s

    def start(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of a process."""
        return self.create_task(work, context=process.context)

    def freeze(self, process: Process) -> None:
        """Stop a process where it stands."""
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Continue a process, with everything that has become ready meanwhile."""
        process.frozen = False
        self._ready.extend(process.held)
        process.held.clear()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context)
        self._drawn += 1
        heapq.heappush(self._timers, (when, self._drawn, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args, context)
        self._drawn += 1
        heapq.heappush(self._timers, (self.now_s + delay, self._drawn, handle))
        return handle

    def _run_once(self) -> None:
        """Run callbacks until the loop stops."""
        ready, timers, draw, process_of = self._ready, self._timers, self.rng.random, _process
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._pass_time()
            while timers and timers[0][0] <= self.now_s:
                ready.append(heapq.heappop(timers)[2])
            self.steps += 1
            if self.steps >= self.next_strike:
                self.next_strike = self.strike(self.steps)
            if self.steps > STEPS_MAX:
                raise Stuck(f"no end after {STEPS_MAX} steps")
            handle = ready.pop(int(draw() * len(ready)))
            if handle.is_cancelled:
                continue
            process = handle.context.get(process_of)
            if process is None or not (process.dead or process.frozen):
                try:
                    handle.context.run(handle.callback, *handle.args)
                except Exception as problem:  # noqa: BLE001 (as asyncio does)
                    self.call_exception_handler({"message": f"{handle.callback!r} failed", "exception": problem})
            elif not process.dead:
                process.held.append(handle)

    def _pass_time(self) -> None:
        """Move the clock to the next timer."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing will ever happen again")
        self.now_s = max(self.now_s, timers[0][0])

    def _process_events(self, _events: Any) -> None: ...

    def _write_to_self(self) -> None: ...
