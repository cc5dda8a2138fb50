"""The SQLite database of a read model: its tables, and who may have the file open."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
from pathlib import Path
from typing import Final, TextIO

from streamproc.errors import InvalidSettings
from streamproc.read_model.series import SERIES_SCHEMA, SERIES_TABLES

APPLICATION: Final = 0x73706D31  # `PRAGMA application_id`: no other file is ever thrown away
VERSION: Final = 5  # of the tables and of what they hold; a file of another version is built again
SQLITE: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
PAGE_CACHE_KIB: Final = 65_536

# Texts that runs and people chose are columns of their own only where a filter needs them.
SCHEMA: Final = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE offsets (role TEXT, partition INTEGER, next INTEGER NOT NULL, last_ms INTEGER NOT NULL,
    PRIMARY KEY (role, partition)) WITHOUT ROWID;
CREATE TABLE runs (run_id TEXT PRIMARY KEY, shown INTEGER NOT NULL, rank INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    started_ms INTEGER NOT NULL, workflow TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL, code TEXT NOT NULL,
    message TEXT NOT NULL, session TEXT NOT NULL, turns INTEGER NOT NULL, cost INTEGER NOT NULL,
    loop INTEGER NOT NULL, failing INTEGER NOT NULL, state BLOB NOT NULL);
CREATE INDEX runs_by_rank ON runs (shown, rank DESC, run_id);
CREATE INDEX runs_by_workflow ON runs (workflow);
CREATE INDEX runs_by_tenant ON runs (tenant);
CREATE INDEX runs_by_user ON runs (user);
CREATE INDEX runs_by_code ON runs (code);
CREATE INDEX runs_by_session ON runs (session);
CREATE INDEX runs_at_work ON runs (shown, at_ms) WHERE shown BETWEEN 2 AND 3;
CREATE TABLE controls (id TEXT PRIMARY KEY, time_ms INTEGER NOT NULL, run_id TEXT NOT NULL, at_ms INTEGER NOT NULL,
    code TEXT NOT NULL, severity TEXT NOT NULL, action TEXT NOT NULL, message TEXT NOT NULL, turn INTEGER,
    workflow TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL, partition INTEGER NOT NULL,
    position INTEGER NOT NULL, policy_hash TEXT NOT NULL, command TEXT NOT NULL, delay_ms INTEGER, body BLOB NOT NULL);
CREATE INDEX controls_by_time ON controls (time_ms, id);
CREATE INDEX controls_by_run ON controls (run_id, time_ms);
CREATE INDEX controls_by_command ON controls (command, run_id) WHERE command != '';
CREATE TABLE policies (name TEXT, version TEXT, hash TEXT, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,
    decisions INTEGER NOT NULL, PRIMARY KEY (name, version, hash)) WITHOUT ROWID;
CREATE TABLE commands (id TEXT PRIMARY KEY, scope TEXT NOT NULL, status TEXT NOT NULL, by TEXT NOT NULL,
    why TEXT NOT NULL, at_ms INTEGER NOT NULL, time_ms INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX commands_by_scope ON commands (scope, state);
CREATE INDEX commands_by_time ON commands (time_ms);
CREATE TABLE guards (run_id TEXT, host TEXT, seen_ms INTEGER NOT NULL, stopped_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, host)) WITHOUT ROWID;
CREATE INDEX guards_by_time ON guards (seen_ms);
CREATE TABLE points (run_id TEXT, number INTEGER, partition INTEGER NOT NULL, position INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, PRIMARY KEY (run_id, number)) WITHOUT ROWID;
CREATE INDEX points_by_time ON points (at_ms);
CREATE TABLE accounts (account TEXT PRIMARY KEY, share REAL NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL,
    state BLOB, marks BLOB);
CREATE INDEX accounts_by_share ON accounts (share DESC, at_ms DESC);
CREATE TABLE refused (partition INTEGER, position INTEGER, at_ms INTEGER NOT NULL, reason TEXT NOT NULL,
    headers BLOB NOT NULL, PRIMARY KEY (partition, position)) WITHOUT ROWID;
CREATE INDEX refused_by_time ON refused (at_ms);
{SERIES_SCHEMA}"""
TABLES: Final = ("meta", "offsets", "runs", "controls", "policies", "commands", "guards", "points", "accounts",
          "refused", *SERIES_TABLES)  # fmt: skip


class Database:
    """One connection that writes and one that reads; in memory both are the same.

    A file belongs to one process: two that write the same offsets would count records twice.
    """

    def __init__(self, path: str | None) -> None:
        """Open or create the database. Raises `InvalidSettings` for a file that is in use or that is something else."""
        self._lock_file = None if path is None else _locked(path)
        try:
            if path is not None:
                _throw_away_old(path)
            self.writer = _connect(path)
            self.reader = self.writer if path is None else _connect(path)
        except (OSError, sqlite3.Error) as problem:
            self._unlock()
            raise _unusable(path, str(problem)) from None
        except InvalidSettings:
            self._unlock()
            raise

    def clear(self) -> None:
        """Delete all rows. The caller commits."""
        for table in TABLES:
            self.writer.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        """Close the connections; the file may be opened by another process."""
        for connection in {self.reader, self.writer}:
            connection.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()


def _connect(path: str | None) -> sqlite3.Connection:
    if path is not None:
        os.close(_own_file(path))  # SQLite would make one that all users can read
    connection = sqlite3.connect(
        ":memory:" if path is None else path, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
    if connection.execute("PRAGMA user_version").fetchone() != (VERSION,):  # before WAL: the header must be in the file
        connection.executescript(
            f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        )
    if path is not None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # the topics are the truth: a torn file is thrown away
        connection.execute("PRAGMA busy_timeout = 10000")
    return connection


def _throw_away_old(path: str) -> None:
    """Delete a file of another version, or a damaged one. Raises `InvalidSettings` for a file that is not ours."""
    file = Path(path)
    if not file.exists() or not file.stat().st_size:
        return
    with file.open("rb") as opened:
        header = opened.read(HEADER_BYTES)
    if not header.startswith(SQLITE) or int.from_bytes(header[68:72]) != APPLICATION:
        raise _unusable(path, "it exists and is not a read model")
    if int.from_bytes(header[60:64]) == VERSION and _is_sound(path):
        return
    for name in (path, f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)


def _is_sound(path: str) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def _locked(path: str) -> TextIO:
    try:
        opened = os.fdopen(_own_file(f"{path}.lock"), "w", encoding="utf-8")
    except OSError as problem:
        raise _unusable(path, str(problem)) from None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        opened.close()
        raise _unusable(path, "another process has it open") from None
    return opened


def _own_file(path: str) -> int:
    """Open a file to write it, or make one that only this user can read. Raises `OSError`, and `InvalidSettings` for a
    link or a file of another user, which may stand there to lead us elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.EMLINK):
            raise _unusable(path, "it is a link") from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(descriptor)
        raise _unusable(path, "it is no regular file, or one of another user")
    return descriptor


def _unusable(path: str | None, why: str) -> InvalidSettings:
    return InvalidSettings(f"--db {path}: {why}: name another file, or leave it out to keep the read model in memory")
