"""The entry point of a worker: `run_worker`, which starts it, restarts it after a crash, and returns its exit code.

Read on from the top down: `run_worker` → `run_with_restarts` → `run_once` → `composition.Worker`, which puts the parts
together: the Faust agents (`agents`), the tables `runs` and `accounts` (`tables`, `spend`), the consumer (`consumer`)
and the pipelines that publish and store what the agents decided (`partition_pipeline`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from streamproc.core.compiled import core_kind
from streamproc.errors import InvalidSettings, StatesOfAnotherVersion, Unavailable
from streamproc.metrics.exposing import exposing
from streamproc.worker import logs
from streamproc.worker.composition import Worker
from streamproc.worker.limits import CRASHES_MAX, CRASHES_WINDOW_S, GC_THRESHOLD, LOOP_STUCK_SESSIONS, RETRY_FIRST_S
from streamproc.worker.metrics import WorkerMetrics
from streamproc.worker.readiness import wait_until_ready
from streamproc.worker.stall_detector import WorkerStalled
from streamproc.worker.tasks import Stopped, cancel_all, unless_stopped
from streamproc.worker.turn_tracing import tracing_turns
from streamproc.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.settings import Settings

log = logging.getLogger("streamproc.worker")

EXIT_OK: Final = 0
EXIT_CRASHED: Final = 1
EXIT_UNUSABLE: Final = 2


def run_worker(
    settings: Settings, policy: Policy, *, give_up_after_s: float | None = None, log_level: str = "info"
) -> int:
    """Watch the turns topic until SIGTERM or SIGINT; return the exit code.

    0: the worker was asked to stop and finished what it had in hand. 1: the broker was away for longer than
    `give_up_after_s` (None: wait without limit), or the worker kept crashing, stalled, or could not stop in time.
    2: the settings cannot be used, or the states of runs are of another version.
    """
    logs.set_up(log_level, settings.log_style)
    with Watchdog(LOOP_STUCK_SESSIONS * settings.session_timeout_s) as watchdog:
        return run_with_restarts(lambda: run_once(settings, policy, give_up_after_s, watchdog), watchdog)


def run_with_restarts(run: Callable[[], Coroutine[Any, Any, None]], watchdog: Watchdog) -> int:
    """Run the worker again after each crash, until it stops for another reason or crashes too often; the exit code."""
    crashes: list[float] = []
    while True:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                watchdog.watch(runner.get_loop())
                runner.run(run())
        except Stopped:
            return EXIT_OK
        except WorkerStalled as problem:
            log.critical("worker stalled while the broker is reachable; exiting: %s", problem)
            return EXIT_CRASHED
        except (InvalidSettings, StatesOfAnotherVersion) as problem:
            log.critical("%s", problem)
            return EXIT_UNUSABLE
        except Unavailable as problem:
            log.critical("gave up: %s", problem)
            return EXIT_CRASHED
        except Exception as problem:
            now = time.monotonic()
            crashes = [moment for moment in crashes if now - moment < CRASHES_WINDOW_S] + [now]
            if len(crashes) >= CRASHES_MAX:
                log.exception(
                    "worker crashed %d times within %g s; leaving the restart to its supervisor",
                    CRASHES_MAX, CRASHES_WINDOW_S,
                )  # fmt: skip
                return EXIT_CRASHED
            log.error("worker crashed; restarting from committed offsets: %r", problem, exc_info=problem)
            time.sleep(RETRY_FIRST_S * 2 ** len(crashes))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def run_once(settings: Settings, policy: Policy, give_up_after_s: float | None, watchdog: Watchdog) -> None:
    """Run the worker once: wait for the broker, then work until a clean stop (raises `Stopped`) or a crash."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    log.info(
        "starts brokers=%s group=%s instance=%s policy=%s version=%s hash=%s path=%s core=%s%s",
        settings.brokers, settings.worker_group, settings.instance or "-",
        policy.name, policy.version, policy.hash, Worker.path, core_kind(),
        f" shadow={settings.shadow}" if settings.shadow else "",
    )  # fmt: skip
    gc.set_threshold(*GC_THRESHOLD)
    metrics = WorkerMetrics(stop)
    async with exposing(settings, metrics.read, metrics.missing), tracing_turns(settings) as tracing:
        ready = await unless_stopped(stop, wait_until_ready(settings, give_up_after_s))
        worker = metrics.worker = Worker(settings, policy, ready, tracing)
        try:
            await worker.run(stop, watchdog)
        finally:
            log.info("stopped %s", worker.processor.counts)
            await cancel_all()
    raise Stopped
