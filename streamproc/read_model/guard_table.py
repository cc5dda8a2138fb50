"""The table `guards`: which processes watch a run, and which of them have stopped it, as far as they report it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from streamproc.read_model.turn_table import TurnHead

GUARDS_MAX: Final = 250_000
GUARDS_OF_A_RUN_MAX: Final = 64  # anyone who may write turns can make up more

_INSERT: Final = (
    "INSERT INTO guards SELECT ?1, ?2, ?3, ?4 WHERE (SELECT count(*) FROM guards WHERE run_id = ?1) < ?5 "
    "OR EXISTS (SELECT 1 FROM guards WHERE run_id = ?1 AND host = ?2) "
    "ON CONFLICT DO UPDATE SET seen_ms = excluded.seen_ms, stopped_ms = excluded.stopped_ms"
)


class GuardTable:
    """Writes the table `guards`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def add(self, heads: Iterable[TurnHead]) -> None:
        """Add the reports among these heads of events, oldest first."""
        for one in heads:
            if one.guard == "left":
                self._db.execute("DELETE FROM guards WHERE run_id = ? AND host = ?", (one.run_id, one.host))
            elif one.guard:
                stopped_ms = one.at_ms if one.guard == "stopped" else 0
                self._db.execute(_INSERT, (one.run_id, one.host, one.at_ms, stopped_ms, GUARDS_OF_A_RUN_MAX))

    def trim(self) -> None:
        """Delete those that were heard of longest ago, beyond the limit."""
        self._db.execute(
            "DELETE FROM guards WHERE seen_ms < (SELECT seen_ms FROM guards ORDER BY seen_ms DESC LIMIT 1 OFFSET ?)",
            (GUARDS_MAX,),
        )
