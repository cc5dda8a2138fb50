"""The real worker, as a process of its own, for as long as the demo runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from streamproc.errors import Unavailable
from streamproc.settings import Settings

READY: Final = re.compile(r"\bready partitions=\d")
READY_TIMEOUT_S: Final = 40.0  # the embedded broker lets a new group wait 3 s; a busy machine needs the rest
STOP_TIMEOUT_S: Final = 15.0
GIVE_UP_AFTER_S: Final = 10  # should the demo be killed, the broker goes, and so does the worker
LOG_LINES_KEPT: Final = 15
PACKAGES: Final = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def worker_process(settings: Settings, directory: Path) -> AsyncIterator[None]:
    """A worker that has its partitions, for as long as the context is open. Raises `Unavailable`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "streamproc", "worker", "--brokers", settings.brokers, "--give-up-after-s", str(GIVE_UP_AFTER_S)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=directory,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the demo, which then ends this in order
    )
    ready = asyncio.Event()
    log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
    reading = asyncio.create_task(_read(process, log, ready))
    try:
        await _until_ready(process, ready, log)
        yield
    finally:
        await _stop(process)
        await reading


def _environment() -> dict[str, str]:
    """This environment without settings of somebody's real Kafka, and with this package importable."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("STREAMPROC_")}
    paths = [str(PACKAGES), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


async def _read(process: asyncio.subprocess.Process, log: deque[str], ready: asyncio.Event) -> None:
    assert process.stdout is not None
    async for raw in process.stdout:
        text = raw.decode(errors="replace").rstrip()
        log.append(text)
        if READY.search(text):
            ready.set()


async def _until_ready(process: asyncio.subprocess.Process, ready: asyncio.Event, log: deque[str]) -> None:
    waiting = [asyncio.ensure_future(ready.wait()), asyncio.ensure_future(process.wait())]
    await asyncio.wait(waiting, timeout=READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if not ready.is_set():
        told = "\n  ".join(log) or "it said nothing"
        how = f"did not get ready within {READY_TIMEOUT_S:g} s" if process.returncode is None else "ended"
        raise Unavailable(f"the worker {how}. Its last lines:\n  {told}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signum)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
                return
