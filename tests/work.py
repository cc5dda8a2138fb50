"""How much work something is: functions that are called, Python's and C's. No other load of the machine changes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def work_of(act: Callable[[], T]) -> tuple[int, T]:
    """Return how many functions were called, and the result."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        result = act()
    finally:
        sys.setprofile(None)
    return calls, result
