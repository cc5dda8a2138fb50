"""``streamproc worker --processes N``: N workers on one machine, one a core, and a parent that keeps them alive.

Python uses one core a process, so a machine with several wants several workers. The parent starts each as a process of
its own, under a name of its own, and does nothing else: it talks to no broker and keeps nothing. One that ends unasked
is started again, a little later each time; one that ends again and again, or cannot use its settings, ends them all.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamproc.worker import limits, logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamproc.settings import Settings

log = logging.getLogger("streamproc.worker.supervisor")

EXIT_OK: Final = 0
EXIT_GAVE_UP: Final = 1
EXIT_UNUSABLE: Final = 2
PR_SET_PDEATHSIG: Final = 1  # Linux: the signal that a process gets when its parent dies


def supervise(settings: Settings, count: int, options: Sequence[str], log_level: str = "info") -> int:
    """Keep `count` workers running until SIGTERM or SIGINT; the exit code, as of one worker.

    `options` are those of `streamproc worker` that all of them get.
    """
    logs.set_up(log_level)
    command = [sys.executable, "-m", "streamproc", "worker", *options]
    return asyncio.run(_supervise(Supervisor([(command, own(settings, number)) for number in range(1, count + 1)])))


async def _supervise(supervisor: Supervisor) -> int:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, supervisor.stop)
    return await supervisor.run()


def own(settings: Settings, number: int) -> dict[str, str]:
    """The environment of one worker: a name and a directory of its own. One of them keeps the status file."""
    return os.environ | {
        "STREAMPROC_INSTANCE": f"{settings.instance}-{number}" if settings.instance else "",
        "STREAMPROC_DATADIR": str(Path(settings.datadir, f"worker-{number}")),
        "STREAMPROC_STATUS_FILE": settings.status_file if number == 1 else "",
        logs.NUMBER: str(number),
    }


class Supervisor:
    """Keeps processes running: for each a command and its environment."""

    def __init__(self, workers: Sequence[tuple[Sequence[str], dict[str, str]]]) -> None:
        self._workers = workers
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask all to finish what they have in hand, and to end."""
        self._stop.set()

    async def run(self) -> int:
        """Keep them running until they are asked to stop, or cannot go on; the exit code."""
        terminating = asyncio.ensure_future(self._terminate())
        try:
            codes = await asyncio.gather(*(self._keep(number) for number in range(1, len(self._workers) + 1)))
        finally:
            terminating.cancel()
        if EXIT_UNUSABLE in codes:
            return EXIT_UNUSABLE
        return EXIT_GAVE_UP if any(codes) else EXIT_OK

    async def _keep(self, number: int) -> int:
        """Start a worker, again and again, until all are to end; its last exit code, or why it is given up."""
        ends: list[float] = []
        while not self._stop.is_set():
            code = await self._life(number)
            if self._stop.is_set():
                log.info("worker %d ended with %d", number, code)
                return EXIT_OK if code == -signal.SIGTERM else code  # it had not begun to listen, and nothing in hand
            if code == EXIT_UNUSABLE:
                log.critical("worker %d cannot use its settings", number)
                self.stop()
                return code
            now = time.monotonic()
            ends = [moment for moment in ends if now - moment < limits.LIVES_WINDOW_S] + [now]
            if len(ends) >= limits.LIVES_MAX:
                log.critical("worker %d ended %d times within %g s", number, limits.LIVES_MAX, limits.LIVES_WINDOW_S)
                self.stop()
                return EXIT_GAVE_UP
            pause_s = min(limits.RETRY_FIRST_S * 2 ** (len(ends) - 1), limits.RETRY_MAX_S)
            log.error("worker %d ended with %d, unasked; starting it again in %g s", number, code, pause_s)
            try:
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()
            except TimeoutError:
                continue
        return EXIT_OK

    async def _life(self, number: int) -> int:
        """One life of a worker; its exit code (below 0: the signal that killed it)."""
        command, environment = self._workers[number - 1]
        # A session of its own: Ctrl-C in a terminal reaches the parent alone, which asks the workers.
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, start_new_session=True, preexec_fn=_end_with_parent()
        )
        self._running[number] = process
        log.info("worker %d is process %d", number, process.pid)
        if self._stop.is_set():
            _send(process, signal.SIGTERM)
        code = await process.wait()
        del self._running[number]
        return code

    async def _terminate(self) -> None:
        """When all are to end: ask them, and after a while do not ask any more."""
        await self._stop.wait()
        for process in self._running.values():
            _send(process, signal.SIGTERM)
        await asyncio.sleep(limits.SUPERVISOR_PATIENCE_S)
        for number, process in self._running.items():
            log.error("worker %d does not end; killing it, what it has not committed will be done again", number)
            _send(process, signal.SIGKILL)


def _send(process: asyncio.subprocess.Process, signum: signal.Signals) -> None:
    try:
        process.send_signal(signum)
    except ProcessLookupError:
        return  # it has just ended


def _end_with_parent() -> Callable[[], None] | None:
    """What a worker does first: have itself asked to end should its parent be killed, where the system can do that."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
