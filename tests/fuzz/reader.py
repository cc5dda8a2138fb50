"""What the readers under test have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

NOTHING: Final[tuple[type[Exception], ...]] = ()


class Reader(NamedTuple):
    """A reader under test."""

    samples: Callable[[], list[bytes]]
    read: Callable[[bytes], Any]
    refuses: tuple[type[Exception], ...]
    after: Callable[[Any], None] = lambda _found: None
    msgpack: bool = False
    restructured: bool = True  # False for texts, and for data that only workers write
    share: float = 1.0  # of the inputs: lower for slow readers


def text_of(data: bytes) -> str:
    """Return a text as Python gets it from an argument or an environment variable: with lone surrogates."""
    return data.decode("utf-8", "surrogateescape")
