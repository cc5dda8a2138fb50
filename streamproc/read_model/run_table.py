"""The table `runs`: what records of `runs`, `control` and `turns` say is folded into the facts of each run."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from streamproc.core.scope import short_name
from streamproc.read_model.run_facts import HIDDEN, RunFacts, figures_of, live_run, order_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

RUNS_MAX: Final = 250_000
TRIMMED_AT_ONCE: Final = 2_000  # so that one transaction stays short
KEYS_AT_ONCE: Final = 500  # of one statement

T = TypeVar("T")

_pack = msgspec.msgpack.Encoder().encode
unpack_facts = msgspec.msgpack.Decoder(RunFacts).decode

_INSERT: Final = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * 16)})"
_UPDATE: Final = (
    "UPDATE runs SET shown = ?, rank = ?, at_ms = ?, started_ms = ?, turns = ?, cost = ?, loop = ?, failing = ?, "
    "state = ? WHERE run_id = ?"
)


class RunTable:
    """Writes the table `runs`."""

    def __init__(self, connection: sqlite3.Connection, runs_max: int = RUNS_MAX) -> None:
        self._db = connection
        self._runs_max = runs_max
        self._inserted: list[tuple[Any, ...]] = []
        self._updated: list[tuple[Any, ...]] = []
        self._new = 0
        self.count()

    def count(self) -> None:
        """Count the rows: once, and after the table was cleared."""
        self._count: int = self._db.execute("SELECT count(*) FROM runs").fetchone()[0]

    def fold(self, news: Iterable[tuple[str, T]], fold: Callable[[RunFacts, T], None]) -> set[str]:
        """Fold news, in order, into the facts of their runs; return the runs. `write` writes their rows."""
        listed = list(news)
        ids = list(dict.fromkeys(run_id for run_id, _ in listed))
        known: dict[str, RunFacts] = {}
        texts: dict[str, tuple[str, ...]] = {}
        for row in self._rows(ids):
            known[row[0]], texts[row[0]] = unpack_facts(row[7]), row[1:7]
        for run_id, one in listed:
            fold(known.setdefault(run_id, RunFacts()), one)
        for run_id in ids:
            facts = known[run_id]
            row = live_run(run_id, facts)
            shown, rank = order_of(row, facts)
            at_ms = row.at_ms if row is not None else facts.heard_ms
            found = ("",) * 6
            if row is not None:
                session = row.session or short_name(run_id)
                found = (row.workflow, row.tenant, row.user, row.code, row.message, session)
            figures = figures_of(row)
            if texts.get(run_id) == found:  # then only one index changes
                self._updated.append((shown, rank, at_ms, facts.first_ms, *figures, _pack(facts), run_id))
            else:
                self._inserted.append((run_id, shown, rank, at_ms, facts.first_ms, *found, *figures, _pack(facts)))
        self._new += len(ids) - len(texts)
        return set(ids)

    def write(self) -> None:
        """Write what `fold` has found."""
        self._db.executemany(_UPDATE, self._updated)
        self._db.executemany(_INSERT, self._inserted)
        self._count += self._new
        self.drop()

    def drop(self) -> None:
        """Forget what `fold` has found."""
        self._inserted, self._updated, self._new = [], [], 0

    def trim(self) -> None:
        """Delete the runs beyond the limit: those that no worker knows, then finished, others, warned, halted ones; of
        each, those first that have been quiet for longest."""
        surplus = self._count - self._runs_max
        if surplus <= self._runs_max // 100:
            return
        for shown in (HIDDEN, 4, 3, 2, 1):
            if surplus <= 0:
                return
            deleted = self._db.execute(
                "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE shown = ? ORDER BY at_ms LIMIT ?)",
                (shown, min(surplus, TRIMMED_AT_ONCE)),
            ).rowcount
            self._count -= deleted
            surplus -= deleted

    def _rows(self, ids: list[str]) -> Iterator[Any]:
        left = iter(ids)
        while some := list(islice(left, KEYS_AT_ONCE)):
            marks = ",".join("?" * len(some))
            columns = "run_id, workflow, tenant, user, code, message, session, state"
            yield from self._db.execute(f"SELECT {columns} FROM runs WHERE run_id IN ({marks})", some)
