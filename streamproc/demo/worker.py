"""The demo's worker: the real one, in its own process."""

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
READY_TIMEOUT_S: Final = 40.0  # the embedded broker delays a new group by 3 s; a busy machine needs the rest
STOP_TIMEOUT_S: Final = 15.0
GIVE_UP_AFTER_S: Final = 10  # if the demo is killed, the broker exits, and then the worker
LOG_LINES_KEPT: Final = 15
PACKAGES: Final = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def worker_process(settings: Settings, directory: Path) -> AsyncIterator[None]:
    """Run a worker while the context is open; enters once it has its partitions. Raises `Unavailable`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "streamproc", "worker", "--brokers", settings.brokers, "--give-up-after-s", str(GIVE_UP_AFTER_S)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=directory,
        env=_environment(),
        start_new_session=True,  # Ctrl-C goes to the demo, which then stops this process
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
    """Return this environment without settings for a real Kafka, and with this package importable."""
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
        lines = "\n  ".join(log) or "(none)"
        how = f"was not ready within {READY_TIMEOUT_S:g} s" if process.returncode is None else "exited"
        raise Unavailable(f"the worker {how}. Its last log lines:\n  {lines}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signum)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
                return
