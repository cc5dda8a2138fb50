"""The watchdog: a thread that ends the process if its event loop is blocked, or if stopping takes too long.

A blocked loop cannot report itself. It sends no heartbeats either, so the group continues without this worker, while
its supervisor believes it alive. The thread prints the stack of every thread and exits with 1. Nothing is lost, because
only stored records are committed.

Time is counted in the thread's own ticks, so a process that was frozen (SIGSTOP, a suspended machine) is not stuck.
Code that never releases the interpreter (a regular expression, say) blocks this thread as well. Then the interpreter's
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
    """Watches one loop at a time, each until it is closed. A context manager."""

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
        """Watch this loop from now on."""

        def turn() -> None:
            self._still_s = 0.0
            loop.call_later(WATCH_TICK_S, turn)

        turn()
        self._loop, self._left_s = loop, None

    def end_within(self, seconds: float) -> None:
        """Give the loop this long to end."""
        self._left_s = seconds

    def _run(self) -> None:
        while not self._over.wait(WATCH_TICK_S):
            faulthandler.dump_traceback_later(INTERPRETER_STUCK_S, exit=True, file=STDERR)
            if self._loop is None or self._loop.is_closed():
                continue
            self._still_s += WATCH_TICK_S
            if self._still_s > self._stuck_after_s:
                _exit(f"the event loop has been blocked for {self._still_s:g} s")
            if self._left_s is not None:
                self._left_s -= WATCH_TICK_S
                if self._left_s < 0:
                    _exit("stopping takes too long")
        faulthandler.cancel_dump_traceback_later()


def _exit(why: str) -> None:
    """Write the reason and all stacks to stderr, and exit. Without `logging`, whose lock may be the cause."""
    with contextlib.suppress(OSError):
        os.set_blocking(STDERR, False)
        os.write(
            STDERR,
            f"CRITICAL {__name__}: {why}; exiting with {EXIT_STUCK}; a restart begins at committed offsets\n".encode(),
        )
    faulthandler.dump_traceback(file=STDERR, all_threads=True)
    os._exit(EXIT_STUCK)
