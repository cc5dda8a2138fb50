"""An event loop with virtual time and seeded order: the same seed always gives the same schedule.

Of the callbacks that are ready, one is chosen at random, so that tasks wake up in every possible order. Every callback
belongs to the process that started its task. A process can be killed between two of its callbacks (that is, at any
`await`), or frozen and continued.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

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


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time, seeded order."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.steps = 0
        self.now_s = START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._drawn = 0
        self.tasks: list[asyncio.Task[Any]] = []  # kept: what a killed process had under way must not be cleaned up
        self.before_step: Callable[[int], None] = lambda _number: None
        self.set_task_factory(self._task)

    def _task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        return task

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
        self._ready.extend(process.held)  # type: ignore[attr-defined]
        process.held.clear()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._drawn += 1
        heapq.heappush(self._timers, (when, self._drawn, timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Stuck("nothing will ever happen again")
            self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(timers)[2])
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Stuck(f"no end after {STEPS_MAX} steps")
        self.before_step(self.steps)
        place = int(self.rng.random() * len(ready))
        handle = ready[place]
        del ready[place]
        if handle._cancelled:
            return
        process = handle._context.get(_process)
        if process is None or not (process.dead or process.frozen):
            handle._run()
        elif not process.dead:
            process.held.append(handle)

    def _process_events(self, _events: Any) -> None: ...

    def _write_to_self(self) -> None: ...
