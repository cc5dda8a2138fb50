"""A thread that ends the process when its event loop stands still, or when an end takes too long.

A loop that does not turn cannot say so itself. It sends no heartbeats either, so the group goes on without this worker,
while its supervisor believes it alive. The thread tells where every thread stands, and ends the process with 1: nothing
is lost by it, because only what is stored is committed.

Time is counted in the thread's own ticks: a process that was frozen (SIGSTOP, a suspended machine) has not been stuck.
Code that never gives the interpreter back (a regular expression, say) stops this thread, too; then the interpreter's
own watchdog, which needs no Python, does the same after a longer time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
from typing import TYPE_CHECKING, Final

from streamproc.worker.limits import INTERPRETER_STUCK_S, WATCH_TICK_S

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

EXIT_STUCK: Final = 1
STDERR: Final = 2


class Watchdog:
    """Watches one loop after the other, each until it is closed. A context manager."""

    def __init__(self, stuck_after_s: float) -> None:
        self._stuck_after_s = stuck_after_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._still_s = 0.0
        self._left_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on this loop has to turn."""

        def turn() -> None:
            self._still_s = 0.0
            loop.call_later(WATCH_TICK_S, turn)

        turn()
        self._loop, self._left_s = loop, None

    def end_within(self, seconds: float) -> None:
        """The loop has so long to come to its end."""
        self._left_s = seconds

    def _run(self) -> None:
        while not self._over.wait(WATCH_TICK_S):
            faulthandler.dump_traceback_later(INTERPRETER_STUCK_S, exit=True, file=STDERR)
            if self._loop is None or self._loop.is_closed():
                continue
            self._still_s += WATCH_TICK_S
            if self._still_s > self._stuck_after_s:
                _die(f"the event loop stands still for {self._still_s:g} s")
            if self._left_s is not None:
                self._left_s -= WATCH_TICK_S
                if self._left_s < 0:
                    _die("the end takes too long")
        faulthandler.cancel_dump_traceback_later()


def _die(why: str) -> None:
    """Say why and where everything stands, and end at once. Without `logging`: its lock may be what is waited for."""
    with contextlib.suppress(OSError):
        os.set_blocking(STDERR, False)
        os.write(STDERR, f"CRITICAL {__name__}: {why}; ending with {EXIT_STUCK}, what is committed stands\n".encode())
    faulthandler.dump_traceback(file=STDERR, all_threads=True)
    os._exit(EXIT_STUCK)
