"""Says below what a command shows that no worker watches some runs, or that decisions are late."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from streamproc.cli.terminal import note, paint, quiet_kafka
from streamproc.errors import StreamprocError
from streamproc.model.addresses import local_log

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from streamproc.settings import Settings

T = TypeVar("T")


class Watched(NamedTuple):
    """Up to which time workers have decided (epoch ms: now, unless none decides), and what is wrong, in a sentence."""

    until_ms: int
    sentence: str = ""


def show_watched(settings: Settings, reading: Coroutine[Any, Any, T], show: Callable[[T, int], None]) -> T:
    """Read; show what was read, and up to when workers have decided; say if they do not decide. Return what was read.

    The workers are listened to meanwhile. It takes two seconds if they live, three if they have been gone for a while,
    and up to ten if some have just gone.
    """
    quiet_kafka()
    if local_log(settings.brokers) is not None:
        found = asyncio.run(reading)
        show(found, int(time.time() * 1000))
        return found
    found, watched = asyncio.run(_both(settings, reading))
    show(found, watched.until_ms)
    if watched.sentence:
        note(paint(f"{watched.sentence[0].upper()}{watched.sentence[1:]}.", "red"))
    return found


async def _both(settings: Settings, reading: Coroutine[Any, Any, T]) -> tuple[T, Watched]:
    hearing = asyncio.create_task(watched(settings))
    try:
        return await reading, await hearing
    finally:
        hearing.cancel()
        await asyncio.wait([hearing])


async def watched(settings: Settings) -> Watched:
    """Listen to the workers."""
    from streamproc.fleet.worker_listener import listen_for_workers
    from streamproc.model.formats import local_time

    now_ms = int(time.time() * 1000)
    if local_log(settings.brokers) is not None:
        return Watched(now_ms)
    try:
        found = await listen_for_workers(settings)
    except StreamprocError:
        return Watched(now_ms)  # what is read fails, too, and says why
    now_ms = int(time.time() * 1000)
    if found is None or found.level == "unknown":
        return Watched(now_ms)
    until_ms = found.state.since_ms if found.state.name == "unwatched" else now_ms
    return Watched(until_ms, found.sentence(lambda ms: local_time(ms, now_ms), now_ms))
