"""The table `refused`: the headers of dead letters. Their keys and values are never kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from streamproc.kafka.reading import Record

REFUSED_MAX: Final = 10_000
HEADERS_MAX: Final = 16
NAME_MAX: Final = 64
TEXT_MAX: Final = 600  # characters; a worker shortens its reasons to 500

Headers = tuple[tuple[str, str], ...]

_pack = msgspec.msgpack.Encoder().encode
unpack_headers = msgspec.msgpack.Decoder(Headers).decode


class RefusedNews(NamedTuple):
    """A dead letter without its content."""

    partition: int
    offset: int
    at_ms: int
    reason: str
    headers: Headers


def refused_news(record: Record) -> RefusedNews:
    """Read the headers of a dead letter."""
    headers = tuple(
        (name[:NAME_MAX], (value or b"")[: TEXT_MAX * 4].decode("utf-8", "replace")[:TEXT_MAX])
        for name, value in record.headers[:HEADERS_MAX]
    )
    return RefusedNews(record.partition, record.offset, record.timestamp, dict(headers).get("reason", ""), headers)


class RefusedTable:
    """Writes the table `refused`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def add(self, news: Iterable[RefusedNews]) -> None:
        """Add dead letters."""
        self._db.executemany(
            "INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?, ?)",
            [(one.partition, one.offset, one.at_ms, one.reason, _pack(one.headers)) for one in news],
        )

    def trim(self) -> None:
        """Delete the oldest dead letters beyond the limit."""
        self._db.execute(
            "DELETE FROM refused WHERE at_ms < (SELECT at_ms FROM refused ORDER BY at_ms DESC LIMIT 1 OFFSET ?)",
            (REFUSED_MAX,),
        )
