"""The read model: topics in, rows out.

One thread at a time applies records; queries may come from any thread meanwhile. Records are parsed and verified before
the database is locked, and written in short transactions together with the offsets, so a query waits for a few
milliseconds at most, and a restart with the same file neither loses nor repeats a record.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import InvalidEvent
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import RecordSigner, read_decision, read_status
from streamproc.fleet.signing import CommandSigner
from streamproc.kafka.partitioning import EVERYWHERE
from streamproc.read_model.account_table import AccountTable, account_news, limit_news
from streamproc.read_model.command_table import CommandTable, command_news
from streamproc.read_model.database import Database
from streamproc.read_model.decision_table import DecisionTable, decision_news
from streamproc.read_model.guard_table import GuardTable
from streamproc.read_model.queries import Queries
from streamproc.read_model.refused_table import RefusedTable, refused_news
from streamproc.read_model.rows import Changes
from streamproc.read_model.run_facts import StatusFacts, note_current, note_finding, note_status, status_facts
from streamproc.read_model.run_table import RunTable
from streamproc.read_model.series import SeriesTable
from streamproc.read_model.turn_table import TurnHead, TurnTable, turn_head

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from streamproc.kafka.reading import Record

TRANSACTION_RECORDS: Final = 256  # a query waits while so many are written: some ms
VALUE_BYTES_MAX: Final = 524_288  # of a decision or a status; a worker's are half of that at most
TRIM_EVERY: Final = 50  # transactions
ACCOUNTS: Final = frozenset({"accounts", "spend"})


class ReadModel(Queries):
    """What the topics say now. `path` is a file that a restart goes on from; None: memory.

    Without `turns`, the heads of turns are not used: `turns`, `cost_usd_micro` and the last sign of life of a run are
    those of its last status. Raises `InvalidSettings` for a file that cannot be used.
    """

    def __init__(self, path: str | None = None, *, turns: bool = True) -> None:
        self.turns = turns
        self.home = EVERYWHERE
        """Turns outside of the home of their run are skipped, as workers refuse them."""
        self.skipped: Counter[str] = Counter()
        """Records that could not be read, or that no worker has signed although it must, by topic role."""
        self._database = Database(path)
        self._db = self._database.writer
        self._lock = threading.RLock()
        super().__init__(self._database.reader, self._lock if path is None else threading.RLock())
        self._applying = threading.Lock()
        self._signer = RecordSigner(Keyring(), "", required=False)
        self._authority = CommandSigner(Keyring(), "", required=False)
        self._runs, self._decisions = RunTable(self._db), DecisionTable(self._db)
        self._series = SeriesTable(self._db)
        self._turn_table, self._commands = TurnTable(self._db, self._series), CommandTable(self._db)
        self._accounts, self._refused = AccountTable(self._db), RefusedTable(self._db)
        self._guards = GuardTable(self._db)
        self._folded = (self._runs, self._decisions, self._turn_table, self._series)
        self._transactions = 0
        self._parsers: dict[str, Callable[[Record], Any]] = {
            "runs": self._status, "activity": self._current, "control": self._decision, "commands": self._command,
            "turns": self._turn, "accounts": account_news, "spend": limit_news, "dead-letter": refused_news,
        }  # fmt: skip
        self._tables: dict[str, CommandTable | AccountTable | RefusedTable | GuardTable] = {
            "commands": self._commands, "accounts": self._accounts, "spend": self._accounts,
            "dead-letter": self._refused, "turns": self._guards,
        }  # fmt: skip
        self._next = self._read_offsets()

    def trust(self, signer: RecordSigner, authority: CommandSigner) -> None:
        """Believe only decisions and statuses that `signer` verifies, and commands that `authority` accepts."""
        self._signer, self._authority = signer, authority

    def bind(self, name: str) -> None:
        """Say which deployment the records are of. What a file holds of another one is thrown away."""
        with self._transaction():
            found = self._db.execute("SELECT value FROM meta WHERE name = 'deployment'").fetchone()
            if found is not None and found[0] != name:
                self._clear()
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('deployment', ?)", (name,))

    def clear(self) -> None:
        """Forget everything: the topics were deleted and made again."""
        with self._applying, self._transaction():
            self._clear()

    def close(self) -> None:
        """Close the database."""
        with self._applying, self._lock:
            self._database.close()

    def next_offset(self, role: str, partition: int) -> int | None:
        """Return the offset of the next record to apply; None if none of the partition was applied yet."""
        return self.next_offsets().get((role, partition))

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return the offset of the next record to apply, by topic role and partition, where one was applied."""
        return {place: offset for place, (offset, _) in self._next.items()}

    def apply(self, topic_role: str, records: Sequence[Record]) -> Changes:
        """Apply records of a topic, each partition in log order; return what has changed.

        Those that were applied before are ignored. Unreadable and unsigned ones are counted in `skipped`.
        """
        changes = Changes()
        with self._applying:
            for first in range(0, len(records), TRANSACTION_RECORDS):
                changes.add(self._apply(topic_role, records[first : first + TRANSACTION_RECORDS]))
        return changes

    def _apply(self, role: str, records: Sequence[Record]) -> Changes:
        found: list[Any] = []
        moved: dict[int, tuple[int, int]] = {}
        for record in records:
            known = moved.get(record.partition) or self._next.get((role, record.partition), (-1, 0))
            if record.offset < known[0]:
                continue
            moved[record.partition] = record.offset + 1, max(known[1], record.timestamp)
            one = self._parsed(role, record)
            if one is not None:
                found.append(one)
        if not moved:
            return Changes()
        try:
            changes = self._fold(role, found)
            with self._transaction():
                self._write(role, found, moved)
        except BaseException:
            for table in self._folded:
                table.drop()
            raise
        self._next.update({(role, partition): place for partition, place in moved.items()})
        self._transactions += 1
        if self._transactions % TRIM_EVERY == 0:
            with self._transaction():
                for one in (*self._folded, self._commands, self._accounts, self._refused, self._guards):
                    one.trim()
        return changes

    def _write(self, role: str, found: list[Any], moved: dict[int, tuple[int, int]]) -> None:
        for table in self._folded:
            table.write()
        if role in self._tables:
            self._tables[role].add(found)
        self._db.executemany(
            "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?)",
            [(role, partition, *place) for partition, place in moved.items()],
        )

    def _fold(self, role: str, found: list[Any]) -> Changes:
        """Work out what records change. It reads the database without the lock: only this thread writes, and SQLite
        lets threads share a connection."""
        if role == "runs":
            return Changes(run_ids=self._runs.fold(found, note_status))
        if role == "activity":
            return Changes(run_ids=self._runs.fold(found, note_current))
        if role == "control":
            added = self._decisions.fold(found)
            self._series.note_decisions(added)
            news = [(one.run_id, one.finding) for one in added if one.finding is not None]
            return Changes(run_ids=self._runs.fold(news, note_finding), decisions=bool(added))
        if role == "turns":
            heads = [(one.run_id, one) for one in found] if self.turns else []
            return Changes(run_ids=self._runs.fold(heads, self._turn_table.fold))
        if not found:
            return Changes()
        return Changes(commands=role == "commands", accounts=role in ACCOUNTS, refused=role == "dead-letter")

    def _parsed(self, role: str, record: Record) -> Any:
        try:
            return self._parsers[role](record)
        except (InvalidEvent, ValueError, OverflowError, RecursionError):
            self.skipped[role] += 1
            return None

    # -- what each topic brings

    def _status(self, record: Record) -> tuple[str, StatusFacts | int] | None:
        value = _small(record)
        run_id = (record.key or b"").decode()
        if value is None:  # a tombstone says no more than that its run is not known: anyone may delete a status
            if self._signer.required:
                self._signer.check("runs", record)
            return run_id, record.partition
        return run_id, self._facts("runs", record, value, run_id)

    def _current(self, record: Record) -> tuple[str, StatusFacts] | None:
        value, run_id = _small(record), (record.key or b"").decode()
        return (run_id, self._facts("activity", record, value, run_id)) if value is not None else None

    def _facts(self, role: str, record: Record, value: bytes, run_id: str) -> StatusFacts:
        status = read_status(value)
        if status is None or status.run_id != run_id:
            raise ValueError("no status of this run")
        if self._signer.required:
            self._signer.check_about(role, record, run_id)
        return status_facts(status, record.timestamp)

    def _turn(self, record: Record) -> TurnHead | None:
        if not self.home.holds(record.key, record.partition):
            raise ValueError("not at home")
        return turn_head(record)

    def _decision(self, record: Record) -> Any:
        value = _small(record)
        decision = read_decision(value)
        if value is None or decision is None or decision.run_id.encode() != record.key:
            raise ValueError("no decision about this run")
        if self._signer.required:
            self._signer.check_about("control", record, decision.run_id)
        return decision_news(decision, value, record.timestamp)

    def _command(self, record: Record) -> Any:
        return command_news(record, self._authority) if record.value is not None else None

    # -- the database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                self._count()
                raise
            self._db.execute("COMMIT")

    def _clear(self) -> None:
        self._database.clear()
        self._next = {}
        self._count()

    def _count(self) -> None:
        for table in self._folded:
            table.count()

    def _read_offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        rows = self._db.execute("SELECT role, partition, next, last_ms FROM offsets")
        return {(role, partition): (offset, last_ms) for role, partition, offset, last_ms in rows}


def _small(record: Record) -> bytes | None:
    """Return the value of a record. Raises `ValueError` if it is larger than any that a worker publishes."""
    if record.value is not None and len(record.value) > VALUE_BYTES_MAX:
        raise ValueError("too large")
    return record.value
