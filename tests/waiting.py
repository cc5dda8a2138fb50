"""Wait for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    condition: Callable[[], T | Awaitable[T]], timeout_s: float = 30, what: str = "", every_s: float = 0.02
) -> T:
    """Return the first true value of ``condition``, a function or coroutine function.

    Fails the test after ``timeout_s`` and names ``what`` it waited for and the last value. The timeout catches a test
    that hangs; it does not measure speed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            waited_for = what or getattr(condition, "__qualname__", repr(condition))
            raise AssertionError(f"waited {timeout_s:g} s for {waited_for}; the last value was {value!r}")
        await asyncio.sleep(every_s)


def wait_until(condition: Callable[[], T], timeout_s: float = 30, what: str = "", every_s: float = 0.02) -> T:
    """Do the same as ``until`` in a test without an event loop."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            waited_for = what or getattr(condition, "__qualname__", repr(condition))
            raise AssertionError(f"waited {timeout_s:g} s for {waited_for}; the last value was {value!r}")
        time.sleep(every_s)
    return value
