"""``streamproc worker --processes N``: N workers on one machine, one a core, and a parent that keeps them alive.

Python uses one core a process, so a machine with several cores needs several workers. The parent starts each as a
process under a name of its own. It connects to no broker and keeps no state. A worker that exits unexpectedly is
started again, after a longer pause each time. One that keeps exiting, or cannot use its settings, ends them all.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from streamproc.metrics.server import address_of_worker
from streamproc.settings import Settings
from streamproc.worker import limits, logs

log = logging.getLogger("streamproc.worker.supervisor")

EXIT_OK: Final = 0
EXIT_GAVE_UP: Final = 1
EXIT_UNUSABLE: Final = 2
PR_SET_PDEATHSIG: Final = 1  # Linux: the signal that a process gets when its parent dies


def supervise(settings: Settings, count: int, options: Sequence[str], log_level: str = "info") -> int:
    """Keep `count` workers running until SIGTERM or SIGINT; return the exit code, as of one worker.

    `options` are the options of `streamproc worker` for all of them.
    """
    logs.set_up(log_level, settings.log_style)
    command = [sys.executable, "-m", "streamproc", "worker", *options]
    return asyncio.run(
        _supervise(Supervisor([(command, own(settings, number, count)) for number in range(1, count + 1)]))
    )


async def _supervise(supervisor: Supervisor) -> int:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, supervisor.stop)
    return await supervisor.run()


def own(settings: Settings, number: int, count: int = 1) -> dict[str, str]:
    """Return the environment of one of several workers: its name, its directory, and the address of its metrics.

    The first one keeps the status file.
    """
    return os.environ | {
        "STREAMPROC_INSTANCE": f"{settings.instance}-{number}" if settings.instance else "",
        "STREAMPROC_DATADIR": str(Path(settings.datadir, f"worker-{number}")),
        "STREAMPROC_STATUS_FILE": settings.status_file if number == 1 else "",
        "STREAMPROC_METRICS": address_of_worker(settings.metrics, number, count),
        "STREAMPROC_LOG_STYLE": settings.log_style,
        logs.NUMBER: str(number),
    }


class Supervisor:
    """Keeps processes running, each given by a command and its environment."""

    def __init__(self, workers: Sequence[tuple[Sequence[str], dict[str, str]]]) -> None:
        self._workers = workers
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask all workers to finish what they have in hand, and to stop."""
        self._stop.set()

    async def run(self) -> int:
        """Keep them running until they are asked to stop or one of them cannot continue; return the exit code."""
        terminating = asyncio.ensure_future(self._terminate())
        try:
            codes = await asyncio.gather(*(self._keep(number) for number in range(1, len(self._workers) + 1)))
        finally:
            terminating.cancel()
        if EXIT_UNUSABLE in codes:
            return EXIT_UNUSABLE
        return EXIT_GAVE_UP if any(codes) else EXIT_OK

    async def _keep(self, number: int) -> int:
        """Start a worker, and restart it until all are to stop; return its last exit code."""
        ends: list[float] = []
        while not self._stop.is_set():
            code = await self._run_once(number)
            if self._stop.is_set():
                log.info("worker %d exited with %d", number, code)
                return (
                    EXIT_OK if code == -signal.SIGTERM else code
                )  # it had not installed its signal handlers yet, and had nothing in hand
            if code == EXIT_UNUSABLE:
                log.critical("worker %d cannot use its settings, or the states that it found", number)
                self.stop()
                return code
            now = time.monotonic()
            ends = [moment for moment in ends if now - moment < limits.CRASHES_WINDOW_S] + [now]
            if len(ends) >= limits.CRASHES_MAX:
                log.critical(
                    "worker %d exited %d times within %g s; stopping all workers",
                    number,
                    limits.CRASHES_MAX,
                    limits.CRASHES_WINDOW_S,
                )
                self.stop()
                return EXIT_GAVE_UP
            pause_s = min(limits.RETRY_FIRST_S * 2 ** (len(ends) - 1), limits.RETRY_MAX_S)
            log.error("worker %d exited unexpectedly with %d; restarting it in %g s", number, code, pause_s)
            try:
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()
            except TimeoutError:
                continue
        return EXIT_OK

    async def _run_once(self, number: int) -> int:
        """Run a worker process; return its exit code (below 0: the signal that killed it)."""
        command, environment = self._workers[number - 1]
        # A session of its own: Ctrl-C in a terminal reaches only the parent, which then stops the workers.
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
        """Once a stop is requested, send SIGTERM to all workers, and SIGKILL after a while."""
        await self._stop.wait()
        for process in self._running.values():
            _send(process, signal.SIGTERM)
        await asyncio.sleep(limits.SUPERVISOR_PATIENCE_S)
        for number, process in self._running.items():
            log.error("worker %d does not stop; killing it. Uncommitted records are processed again", number)
            _send(process, signal.SIGKILL)


def _send(process: asyncio.subprocess.Process, signum: signal.Signals) -> None:
    try:
        process.send_signal(signum)
    except ProcessLookupError:
        return  # it has just exited


def _end_with_parent() -> Callable[[], None] | None:
    """Return a function that lets a worker receive SIGTERM if its parent is killed; None if the system cannot."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
