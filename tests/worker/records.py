"""Records as a consumer returns them, without a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TOPIC = "streamproc.turns"
NOON_MS = 1_700_000_000_000


class Record(NamedTuple):
    """The fields of a consumer record that the worker reads."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = NOON_MS
    partition: int = 0
    topic: str = TOPIC
    timestamp_type: int = 1  # LogAppendTime
    headers: tuple[tuple[str, bytes], ...] = ()


def records_of(
    pairs: Iterable[tuple[bytes | None, bytes | None]], first: int = 0, at_ms: int = NOON_MS
) -> list[Record]:
    """Records in order, a millisecond apart."""
    return [Record(first + place, key, value, at_ms + place) for place, (key, value) in enumerate(pairs)]
