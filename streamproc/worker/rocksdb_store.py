"""The written runs of one partition on disk, in RocksDB, with the changelog's offset that they correspond to.

Each acknowledged write to the changelog becomes one atomic batch, including its offset: whatever happens to the
process, the store equals the changelog up to that offset, and recovery continues from there. The store holds nothing
that is not in the changelog, so one that is damaged, too old or of another format is deleted.

Two indexes in order of time stand beside the states: the expiry of each run, by rank (`worker.eviction`), and its
deadline. An index entry is never later than the true time, which is stored with the state. An entry that is too early
is moved once its time has come, and one of a former rank is deleted. So a run with frequent events costs the indexes
nothing, and no run costs memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

from streamproc.errors import InvalidSettings
from streamproc.model.time_range import wall_ms
from streamproc.settings import Settings
from streamproc.worker.codec import FRAME, peek_run
from streamproc.worker.eviction import KEEP_MS, OPEN, ORDER, RANKS, Leaving
from streamproc.worker.limits import (
    ROCKSDB_AGE_MAX_MS,
    ROCKSDB_BLOCK_BYTES,
    ROCKSDB_BUFFER_BYTES,
    ROCKSDB_CACHE_BYTES,
    ROCKSDB_FILE_BYTES,
    ROCKSDB_MEMTABLE_BYTES,
    ROCKSDB_PAGE,
    ROCKSDB_SCAN_MAX,
)

log = logging.getLogger(__name__)

STATE, AGE, DUE, META = b"s", b"a", b"d", b"m"  # what the keys begin with
MOMENT: Final = Struct(">Q")  # of an index: in the order of time
EXPIRY: Final = Struct("<QB")  # before each state: the expiry of the run (epoch ms), and its rank
# Format, offset, last applied record, time of the write (epoch ms), number of runs of each rank.
META_VALUE: Final = Struct(f"<IqqQ{len(RANKS)}Q")
FORMAT: Final = 2
UNREADABLE: Final = "SPOILED"  # a marker file: the database beside it is unreadable


class RocksDBFailed(Exception):
    """RocksDB cannot read or write."""


class RocksDBStores:
    """The stores of a worker in DATADIR/group/instance, one directory each, locked against other workers."""

    def __init__(self, settings: Settings) -> None:
        from pathlib import Path

        try:
            import rocksdict
        except ImportError:
            raise InvalidSettings(
                "STREAMPROC_STORE: rocksdb needs another package: pip install 'streamproc[rocksdb]'"
            ) from None
        self._rocks = rocksdict
        self._path = Path(settings.datadir) / settings.worker_group / (settings.instance or "worker")
        self._lock = self._locked()
        self._cache = rocksdict.Cache(ROCKSDB_CACHE_BYTES)
        self._buffers = rocksdict.WriteBufferManager(ROCKSDB_BUFFER_BYTES, False)

    def _locked(self) -> Any:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            file = (self._path / "worker.lock").open("w")
        except OSError as problem:
            raise InvalidSettings(
                f"STREAMPROC_DATADIR: {problem}: name a directory that the worker can write"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InvalidSettings(
                f"STREAMPROC_DATADIR: another worker keeps its runs in {self._path}: "
                "give each worker a STREAMPROC_INSTANCE of its own"
            ) from None
        return file

    def close(self) -> None:
        """Release the lock of the directory."""
        self._lock.close()

    def open(self, partition: int) -> RocksDBStore:
        """Open the store of a partition; an empty one if there is no usable one. Raises `RocksDBFailed`."""
        path = self._path / str(partition)
        store = None if (path / UNREADABLE).exists() else self._opened(path)
        if store is not None and store.usable:
            return store
        if path.exists():
            log.warning("%s is unusable; reading everything from the changelog", path)
        if store is not None:
            store.close()
        try:
            shutil.rmtree(path, ignore_errors=True)
            return RocksDBStore(path, self._database(path), self._new_batch)
        except Exception as problem:
            raise _failed(path, problem) from problem

    def _opened(self, path: Path) -> RocksDBStore | None:
        """Open an existing store; return None if RocksDB cannot read it. Other errors are raised."""
        try:
            return RocksDBStore(path, self._database(path), self._new_batch)
        except Exception as problem:
            if str(problem).startswith(("Corruption", "Invalid argument", "Not implemented")):
                log.warning("%s", problem)
                return None
            raise _failed(path, problem) from problem

    def _new_batch(self) -> Any:
        return self._rocks.WriteBatch(raw_mode=True)

    def _database(self, path: Path) -> Any:
        rocks = self._rocks
        options, blocks = rocks.Options(raw_mode=True), rocks.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)  # bits a key: one in a hundred lookups of a new run reads a block in vain
        blocks.set_cache_index_and_filter_blocks(True)  # so that the cache bounds them, too
        blocks.set_block_size(ROCKSDB_BLOCK_BYTES)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_compression_type(rocks.DBCompressionType.lz4())
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_target_file_size_base(ROCKSDB_FILE_BYTES)
        options.set_write_buffer_size(ROCKSDB_MEMTABLE_BYTES)
        options.set_write_buffer_manager(self._buffers)
        # Without the last argument it would use the options of the existing files, which name no cache.
        return rocks.Rdict(str(path), options, column_families={"default": options})


class RocksDBStore:
    """One partition's runs: a mapping from key to encoded state. Values are readable at once, durable after `commit`.

    It also has the deadlines of the runs (`set`, `again`, `take`, as in `DeadlineQueue`) and their expiry (`expired`).
    """

    def __init__(self, path: Path, db: Any, new_batch: Callable[[], Any]) -> None:
        self._path = path
        self._db = db
        self._new_batch = new_batch
        self._batch = self._new_batch()
        self._pending: dict[bytes, bytes | None] = {}
        self._asked: dict[bytes, bytes] = {}  # runs returned by `take`, with their index entry
        self._leaving: dict[bytes, bytes] = {}  # runs returned by `expired`, with their index entry
        self._discarded = False
        kept = db.get(META)
        if kept is None:
            kept = META_VALUE.pack(FORMAT, -1, -1, wall_ms(), *(0 for _ in RANKS))
        elif len(kept) != META_VALUE.size:
            kept = META_VALUE.pack(0, -1, -1, 0, *(0 for _ in RANKS))
        format_, self.offset, self.applied, self._at_ms, *self.counts = META_VALUE.unpack(kept)
        # Tombstones leave the changelog after a day: an older store may have missed some.
        self.usable = format_ == FORMAT and 0 <= wall_ms() - self._at_ms < ROCKSDB_AGE_MAX_MS

    # The mapping.

    def __len__(self) -> int:
        return sum(self.counts)

    @property
    def pending(self) -> int:
        """The number of states that are not committed yet."""
        return len(self._pending)

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """Return a run as last written."""
        value = self._value(key)
        return value[EXPIRY.size :] if value is not None else default

    def __contains__(self, key: bytes) -> bool:
        return self._value(key) is not None

    def __setitem__(self, key: bytes, raw: bytes) -> None:
        before = self._value(key)
        applied, rank = peek_run(raw) or (-1, OPEN)
        expiry_ms = wall_ms() + KEEP_MS[rank]
        self.applied = max(self.applied, applied)
        before_ms, before_rank = EXPIRY.unpack_from(before) if before is not None else (0, -1)
        self.counts[rank] += 1
        if before is not None:
            self.counts[before_rank] -= 1
        leaving = self._leaving.pop(key, None)
        if leaving is not None:
            self._batch.delete(leaving)
        if before_rank != rank or leaving is not None or expiry_ms < before_ms:
            self._batch.put(_entry(_age(rank), expiry_ms, key), b"")
        self._arm(key, raw, before)
        value = EXPIRY.pack(expiry_ms, rank) + raw
        self._batch.put(STATE + key, value)
        self._pending[key] = value

    def pop(self, key: bytes, default: None = None) -> None:
        """Delete a run."""
        if (before := self._value(key)) is not None:
            self.counts[EXPIRY.unpack_from(before)[1]] -= 1
        for entries in (self._asked, self._leaving):
            if (entry := entries.pop(key, None)) is not None:
                self._batch.delete(entry)
        self._batch.delete(STATE + key)
        self._pending[key] = default

    def __iter__(self) -> Iterator[bytes]:
        """Yield all keys. Runs may be added and removed during the iteration."""
        yield from [key for key, value in self._pending.items() if value is not None]
        start = STATE
        while page := self._page(start, bytes((STATE[0] + 1,)), ROCKSDB_PAGE):
            yield from (key[1:] for key in page if key[1:] not in self._pending)
            start = page[-1] + b"\0"

    def commit(self, offset: int) -> None:
        """Write all changes and the changelog offset atomically. Raises `RocksDBFailed`."""
        kept = META_VALUE.pack(FORMAT, offset, self.applied, wall_ms(), *self.counts)
        self._batch.put(META, kept)
        self._write(self._batch)
        self._batch = self._new_batch()
        self._pending.clear()
        self.offset = offset

    # Expiry.

    def expired(self, now_ms: int, surplus: Sequence[int], most: int) -> list[Leaving]:
        """Return runs that have to go now. `surplus` is how many of each rank exceed the run limit.

        Each is returned once, until it is put or popped.
        """
        found: list[Leaving] = []
        moves = self._new_batch()
        for rank in ORDER:
            found += self._expired(rank, now_ms, surplus[rank], most - len(found), moves)
        self._move(moves)
        return found

    def _expired(self, rank: int, now_ms: int, surplus: int, most: int, moves: Any) -> Iterator[Leaving]:
        index, found = _age(rank), 0
        end = _age(rank + 1) if surplus > 0 else _entry(index, now_ms + 1, b"")
        for entry in self._page(index, end, ROCKSDB_SCAN_MAX):
            at_ms, key = MOMENT.unpack_from(entry, len(index))[0], entry[len(index) + MOMENT.size :]
            if found >= most or (at_ms > now_ms and found >= surplus):
                return
            if self._leaving.get(key) == entry:
                continue
            value = self._value(key)
            expiry_ms, rank_now = EXPIRY.unpack_from(value) if value is not None else (0, -1)
            if rank_now != rank:
                moves.delete(entry)
            elif expiry_ms > at_ms:
                moves.delete(entry)
                moves.put(_entry(index, expiry_ms, key), b"")
            elif key not in self._leaving:
                self._leaving[key] = entry
                found += 1
                yield Leaving(key, rank, at_ms > now_ms)

    # Deadlines.

    def _arm(self, key: bytes, raw: bytes, before: bytes | None) -> None:
        due_ms = _due_ms(raw)
        before_ms = _due_ms(before, EXPIRY.size) if before is not None else 0
        asked = self._asked.pop(key, None)
        if asked is not None:
            self._batch.delete(asked)
        if due_ms and (not before_ms or due_ms < before_ms or asked is not None):
            self._batch.put(_entry(DUE, due_ms, key), b"")

    def set(self, key: bytes, due_ms: int) -> None:
        """Do nothing: the deadline is part of the stored value."""

    def again(self, key: bytes, due_ms: int) -> None:
        """Set the next deadline, in log time, of a run that `take` returned."""
        moves = self._new_batch()
        asked = self._asked.pop(key, None)
        if asked is not None:
            moves.delete(asked)
        moves.put(_entry(DUE, due_ms, key), b"")
        self._move(moves)

    def take(self, now_ms: int, most: int) -> list[bytes]:
        """Return runs whose deadline has passed, earliest first; each once, until it is put again."""
        found: list[bytes] = []
        moves = self._new_batch()
        for entry in self._page(DUE, DUE + MOMENT.pack(now_ms + 1), most + len(self._asked)):
            at_ms, key = MOMENT.unpack_from(entry, 1)[0], entry[1 + MOMENT.size :]
            if key in self._asked:
                continue
            value = self._value(key)
            due_ms = _due_ms(value, EXPIRY.size) if value is not None else 0
            if due_ms > at_ms or not due_ms:
                moves.delete(entry)
            if due_ms > at_ms:
                moves.put(_entry(DUE, due_ms, key), b"")
            elif due_ms:
                self._asked[key] = entry
                found.append(key)
        self._move(moves)
        return found

    # RocksDB.

    def discard(self) -> None:
        """Delete the files on `close`: they belong to a topic that was deleted."""
        self._discarded = True

    def close(self) -> None:
        """Close the files. Uncommitted changes are lost."""
        with contextlib.suppress(Exception):  # a full disk, once more
            self._db.close()
        self._db = None
        if self._discarded:
            shutil.rmtree(self._path, ignore_errors=True)

    def _value(self, key: bytes) -> bytes | None:
        if key in self._pending:
            return self._pending[key]
        try:
            found: bytes | None = self._db.get(STATE + key)
        except Exception as problem:
            raise self._unreadable(problem) from problem
        return found

    def _page(self, start: bytes, end: bytes, most: int) -> list[bytes]:
        """Return at most `most` keys from `start` to before `end`. No iterator stays open: it would pin the files."""
        found: list[bytes] = []
        try:
            walk = self._db.iter()
            walk.seek(start)
            while walk.valid() and len(found) < most and (key := walk.key()) < end:
                found.append(key)
                walk.next()
            walk.status()
        except Exception as problem:
            raise self._unreadable(problem) from problem
        return found

    def _move(self, moves: Any) -> None:
        if not moves.is_empty():
            self._write(moves)

    def _write(self, batch: Any) -> None:
        try:
            self._db.write(batch)
        except Exception as problem:
            raise _failed(self._path, problem) from problem

    def _unreadable(self, problem: Exception) -> RocksDBFailed:
        """Mark an unreadable store, so that the next run of the worker reads the changelog instead."""
        if str(problem).startswith("Corruption"):
            with contextlib.suppress(OSError):
                (self._path / UNREADABLE).touch()
        return _failed(self._path, problem)


def _failed(path: Path, problem: Exception) -> RocksDBFailed:
    return RocksDBFailed(
        f"cannot store the runs in {path}: {problem}. Check whether the disk is full. "
        "Nothing is lost: unstored records are not committed, and are processed again"
    )


def _age(rank: int) -> bytes:
    return AGE + bytes((rank,))


def _entry(index: bytes, at_ms: int, key: bytes) -> bytes:
    return index + MOMENT.pack(at_ms) + key


def _due_ms(raw: bytes, start: int = 0) -> int:
    return int(FRAME.unpack_from(raw, start)[1]) if len(raw) >= start + FRAME.size else 0
