"""The log of `streamproc up`: turns, decisions, and the states of runs and accounts, in one SQLite file.

An event, the state after it and its decisions are written in one transaction, so a process that is killed has recorded
all of them or none. One process writes; others may read meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from streamproc.errors import InvalidSettings

VERSION: Final = 2
TURNS: Final = "turns"
CONTROL: Final = "control"
RECORDS_MAX: Final = 1_000  # that are read at a time
COMMITS_MAX: Final = 100  # before they are copied from the write-ahead log into the file
PAGES_MAX: Final = 16_384  # of the write-ahead log (64 MiB): the writer copies them itself, and waits for the disk

_SCHEMA: Final = """
CREATE TABLE records (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    role TEXT NOT NULL,
    run_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE INDEX records_of_run ON records (run_id, position);
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    state BLOB NOT NULL,
    status BLOB NOT NULL,
    position INTEGER NOT NULL,
    halt BLOB,
    heard_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_position ON runs (position);
CREATE INDEX runs_by_age ON runs (heard_ms);
CREATE INDEX runs_due ON runs (due_ms) WHERE due_ms > 0;
CREATE TABLE accounts (name TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;
"""
_IDS: Final = "CREATE TABLE IF NOT EXISTS ids (digest INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL)"


class StoredRecord(NamedTuple):
    """A record of the log: an event (`TURNS`) or a decision (`CONTROL`), as on Kafka."""

    position: int
    role: str
    run_id: str
    at_ms: int
    value: bytes


class StoredRun(NamedTuple):
    """A run as it is stored, with its status for readers, and the position of the last event that changed it. `halt` is
    the decision that halts it; `heard_ms` the time of its last event, deadlines apart; `due_ms` its next deadline, 0:
    none."""

    run_id: str
    state: bytes
    status: bytes
    position: int
    halt: bytes | None
    heard_ms: int
    due_ms: int


class LiveLog:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.moved: Path | None = None
        """Where a file went that could not be read: what it held is kept for you, and not used."""
        self.on_behind: Callable[[], object] = lambda: None
        """Called when `checkpoint` should be, from another thread."""
        self._path, self._commits = path, 0
        try:
            self._db = _opened(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked, or no room: not the file's fault
                raise InvalidSettings(f"{path}: cannot be opened ({error})") from None
            self.moved = path.with_name(f"{path.name}.damaged-{time.time_ns() // 1_000_000}")
            path.rename(self.moved)
            for beside in ("-wal", "-shm"):
                path.with_name(path.name + beside).unlink(missing_ok=True)
            self._db = _opened(path)
        # The greatest that ever was: readers who follow the log wait for greater ones, whatever was forgotten.
        self.position = int(self._db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything of a block, or nothing. Raises `sqlite3.Error`, for instance for a full disk."""
        before = self.position
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
            self._commits += 1
            if self._commits >= COMMITS_MAX:
                self._commits = 0
                self.on_behind()
        except BaseException:
            self.position = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def checkpoint(self) -> None:
        """Copy what was committed into the file itself, with a connection of its own: the writer does not wait for the
        disk. Raises `sqlite3.Error`."""
        with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=rw", uri=True)) as db:  # makes no new file
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def append(self, role: str, run_id: str, at_ms: int, value: bytes) -> int:
        """Add a record, and return its position."""
        self.position += 1
        self._db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", (self.position, role, run_id, at_ms, value))
        return self.position

    def put_run(self, run: StoredRun) -> None:
        """Store the state of a run."""
        self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", run)

    def put_account(self, name: str, state: bytes) -> None:
        """Store the state of an account."""
        self._db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?)", (name, state))

    def note_id(self, name: str, at_ms: int) -> None:
        """Note the id of an event or a command."""
        self._db.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (_digest(name), at_ms))

    def knows_id(self, name: str) -> bool:
        """Return whether an id was noted."""
        return self._db.execute("SELECT 1 FROM ids WHERE digest = ?", (_digest(name),)).fetchone() is not None

    def run(self, run_id: str) -> StoredRun | None:
        """Return a run; None if it is not known."""
        row = self._db.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return None if row is None else StoredRun(*row)

    def runs(self, limit: int) -> list[StoredRun]:
        """Return the runs that were heard of last, newest first."""
        rows = self._db.execute("SELECT * FROM runs ORDER BY heard_ms DESC LIMIT ?", (limit,))
        return [StoredRun(*row) for row in rows]

    def going(self) -> list[str]:
        """Return the runs that are not halted."""
        return [row[0] for row in self._db.execute("SELECT run_id FROM runs WHERE halt IS NULL")]

    def account(self, name: str) -> bytes | None:
        """Return the state of an account; None if it is not known."""
        row = self._db.execute("SELECT state FROM accounts WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def accounts(self) -> dict[str, bytes]:
        """Return the states of all accounts, by name."""
        return dict(self._db.execute("SELECT name, state FROM accounts"))

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Return the runs whose deadline is reached, the longest overdue first."""
        rows = self._db.execute(
            "SELECT run_id FROM runs WHERE due_ms > 0 AND due_ms <= ? ORDER BY due_ms LIMIT ?", (now_ms, limit)
        )
        return [row[0] for row in rows]

    def next_due_ms(self) -> int:
        """Return the next deadline of any run; 0: none."""
        return int(self._db.execute("SELECT coalesce(min(due_ms), 0) FROM runs WHERE due_ms > 0").fetchone()[0])

    def newest_ms(self) -> int:
        """Return the time of the newest record; 0: there is none."""
        row = self._db.execute("SELECT at_ms FROM records ORDER BY position DESC LIMIT 1").fetchone()
        return 0 if row is None else int(row[0])

    def records(self, run_id: str = "") -> Iterator[StoredRecord]:
        """Yield the records of a run, or of all, in the order of the log."""
        where = "run_id = ?" if run_id else "? = ''"
        query = f"SELECT * FROM records WHERE {where} ORDER BY position"
        yield from map(StoredRecord._make, self._db.execute(query, (run_id,)))

    def records_after(self, position: int, role: str) -> list[StoredRecord]:
        """Return the records of a topic that came after a position, at most `RECORDS_MAX`."""
        query = "SELECT * FROM records WHERE role = ? AND position > ? ORDER BY position LIMIT ?"
        return [StoredRecord._make(row) for row in self._db.execute(query, (role, position, RECORDS_MAX))]

    def forget_before(self, at_ms: int, accounts: Sequence[str]) -> None:
        """Delete the runs that were not heard of since, with their records, older ids, and these accounts."""
        with self.transaction():
            self._db.execute(
                "DELETE FROM records WHERE run_id IN (SELECT run_id FROM runs WHERE heard_ms < ?)", (at_ms,)
            )
            self._db.execute("DELETE FROM runs WHERE heard_ms < ?", (at_ms,))
            self._db.execute("DELETE FROM ids WHERE at_ms < ?", (at_ms,))
            self._db.executemany("DELETE FROM accounts WHERE name = ?", [(name,) for name in accounts])


def _digest(name: str) -> int:
    """Return an id as a number that SQLite can hold."""
    return xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) >> 1


def _opened(path: Path) -> sqlite3.Connection:
    """Open the file for writing; a new one gets its tables."""
    path.touch(mode=0o600)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {PAGES_MAX}")
        db.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing; a power cut the last moments
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        elif found != VERSION:
            what = f"{path} was written by another version of streamproc ({found}, not {VERSION})"
            raise InvalidSettings(f"{what}: move it away, or use that version")
        db.execute("SELECT count(*) FROM runs").fetchone()
        db.execute(_IDS)  # files of before have none
    except BaseException:
        db.close()
        raise
    return db
