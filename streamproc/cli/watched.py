"""Says on standard error, below what a command shows, that no worker watches some runs or that decisions are late."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from streamproc.cli.terminal import note, paint, quiet_kafka
from streamproc.errors import StreamprocError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from streamproc.settings import Settings

T = TypeVar("T")


def show_watched(settings: Settings, reading: Coroutine[Any, Any, T], show: Callable[[T], None]) -> T:
    """Read, show what was read, and then say whether workers decide; return what was read.

    The workers are listened to meanwhile. It takes two seconds if they live, and ten if they do not.
    """
    quiet_kafka()
    return asyncio.run(_show_watched(settings, reading, show))


async def _show_watched(settings: Settings, reading: Coroutine[Any, Any, T], show: Callable[[T], None]) -> T:
    hearing = asyncio.create_task(_sentence(settings))
    try:
        found = await reading
        show(found)
        if sentence := await hearing:
            note(paint(f"{sentence[0].upper()}{sentence[1:]}.", "red"))
    finally:
        hearing.cancel()
        await asyncio.wait([hearing])
    return found


async def _sentence(settings: Settings) -> str:
    from streamproc.fleet.hearing import hear
    from streamproc.model.formats import local_time

    try:
        found = await hear(settings)
    except StreamprocError:
        return ""  # what is read fails, too, and says why
    now_ms = int(time.time() * 1000)
    if found is None or found.level == "unknown":
        return ""
    return found.sentence(lambda ms: local_time(ms, now_ms), now_ms)
