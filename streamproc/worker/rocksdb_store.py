"""The written runs of one partition on disk, in RocksDB, with the changelog's offset that they correspond to.

Everything that one acknowledged write to the changelog brought goes into one atomic batch, its offset too: whatever
happens to the process, the shelf is the changelog up to that offset, and recovery reads on from there. It holds nothing
that is not in the changelog, so a shelf that is damaged, too old or of another form is thrown away.

Beside the states there are two indexes, in the order of time: when a run may go, and when it wants to be asked. An
entry is never later than the truth, which stands with the state; one that is too early is moved when its time has
come. So a run that is heard of often costs the indexes nothing, and no run costs memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
import time
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import InvalidSettings
from streamproc.worker.codec import FRAME, seen_of
from streamproc.worker.limits import (
    FINISHED_KEEP_MS,
    IDLE_KEEP_MS,
    SHELF_AGE_MAX_MS,
    SHELF_BLOCK_BYTES,
    SHELF_BUFFER_BYTES,
    SHELF_CACHE_BYTES,
    SHELF_FILE_BYTES,
    SHELF_LOOK_MAX,
    SHELF_MEMTABLE_BYTES,
    SHELF_PAGE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamproc.settings import Settings

log = logging.getLogger(__name__)

STATE, AGE, DUE, META = b"s", b"a", b"d", b"m"  # what the keys begin with
MOMENT: Final = Struct(">Q")  # of an index: in the order of time
EXPIRY: Final = Struct("<Q")  # before each state: when the run may go (epoch ms)
KEPT: Final = Struct("<IqqQQ")  # form, offset, the last record that was applied, how many runs, when (epoch ms)
FORM: Final = 1
SPOILED: Final = "SPOILED"  # a file: what is beside it cannot be read


class RocksDBFailed(Exception):
    """RocksDB cannot read or write."""


class RocksDBStores:
    """Where a worker has its shelves: DATADIR/group/instance, one directory each. Nobody else may have the place."""

    def __init__(self, settings: Settings) -> None:
        from pathlib import Path

        try:
            import rocksdict
        except ImportError:
            raise InvalidSettings(
                "STREAMPROC_STORE: rocksdb needs a package more: pip install 'streamproc[rocksdb]'"
            ) from None
        self._rocks = rocksdict
        self._path = Path(settings.datadir) / settings.worker_group / (settings.instance or "worker")
        self._lock = self._locked()
        self._cache = rocksdict.Cache(SHELF_CACHE_BYTES)
        self._buffers = rocksdict.WriteBufferManager(SHELF_BUFFER_BYTES, False)

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
        """Let others have the place."""
        self._lock.close()

    def open(self, partition: int) -> RocksDBStore:
        """The shelf of a partition; an empty one where there is none that can be used. Raises `RocksDBFailed`."""
        path = self._path / str(partition)
        shelf = None if (path / SPOILED).exists() else self._opened(path)
        if shelf is not None and shelf.usable:
            return shelf
        if path.exists():
            log.warning("%s cannot be used; reading everything from the changelog", path)
        if shelf is not None:
            shelf.close()
        try:
            shutil.rmtree(path, ignore_errors=True)
            return RocksDBStore(path, self._database(path), self._new_batch)
        except Exception as problem:
            raise _failed(path, problem) from problem

    def _opened(self, path: Path) -> RocksDBStore | None:
        """The shelf as it was left; None where RocksDB cannot make sense of it. A full disk is something else."""
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
        blocks.set_bloom_filter(10, False)  # bits a key: one in a hundred looks for a new run reads a block in vain
        blocks.set_cache_index_and_filter_blocks(True)  # so they, too, are bounded by it
        blocks.set_block_size(SHELF_BLOCK_BYTES)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_compression_type(rocks.DBCompressionType.lz4())
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_target_file_size_base(SHELF_FILE_BYTES)
        options.set_write_buffer_size(SHELF_MEMTABLE_BYTES)
        options.set_write_buffer_manager(self._buffers)
        # Without the last argument it would take the options of the files that are there, which name no cache.
        return rocks.Rdict(str(path), options, column_families={"default": options})


class RocksDBStore:
    """One partition's runs, as a mapping from key to packed state; what is put is read at once, and kept with `commit`.

    Besides, the clocks of its runs: `set`, `again` and `take` as `Alarms` has them, and `expired`.
    """

    def __init__(self, path: Path, db: Any, new_batch: Callable[[], Any]) -> None:
        self._path = path
        self._db = db
        self._new_batch = new_batch
        self._batch = self._new_batch()
        self._pending: dict[bytes, bytes | None] = {}
        self._asked: dict[bytes, bytes] = {}  # runs that were told that their time has come, and by which entry
        self._leaving: dict[bytes, bytes] = {}  # runs that were told to go, and by which entry
        self._doomed = False
        kept = db.get(META)
        form, self.offset, self.applied, self._count, self._at_ms = (
            KEPT.unpack(kept) if kept is not None and len(kept) == KEPT.size else (FORM, -1, -1, 0, wall_ms())
        )
        # Tombstones leave the changelog after a day: what is older than that may have missed some.
        self.usable = form == FORM and 0 <= wall_ms() - self._at_ms < SHELF_AGE_MAX_MS

    # The mapping.

    def __len__(self) -> int:
        return self._count

    @property
    def pending(self) -> int:
        """States that are put, and not kept yet."""
        return len(self._pending)

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """A run as it was written last."""
        value = self._value(key)
        return value[EXPIRY.size :] if value is not None else default

    def __contains__(self, key: bytes) -> bool:
        return self._value(key) is not None

    def __setitem__(self, key: bytes, raw: bytes) -> None:
        before = self._value(key)
        applied, finished = seen_of(raw) or (-1, False)
        expiry_ms = wall_ms() + (FINISHED_KEEP_MS if finished else IDLE_KEEP_MS)
        self.applied = max(self.applied, applied)
        if before is None:
            self._count += 1
        leaving = self._leaving.pop(key, None)
        if leaving is not None:
            self._batch.delete(leaving)
        if before is None or leaving is not None or expiry_ms < EXPIRY.unpack_from(before)[0]:
            self._batch.put(_entry(AGE, expiry_ms, key), b"")
        self._arm(key, raw, before)
        value = EXPIRY.pack(expiry_ms) + raw
        self._batch.put(STATE + key, value)
        self._pending[key] = value

    def pop(self, key: bytes, default: None = None) -> None:
        """Forget a run."""
        if self._value(key) is not None:
            self._count -= 1
        for entries in (self._asked, self._leaving):
            if (entry := entries.pop(key, None)) is not None:
                self._batch.delete(entry)
        self._batch.delete(STATE + key)
        self._pending[key] = default

    def __iter__(self) -> Iterator[bytes]:
        """All keys. May be walked slowly: runs may come and go meanwhile."""
        yield from [key for key, value in self._pending.items() if value is not None]
        start = STATE
        while page := self._page(start, bytes((STATE[0] + 1,)), SHELF_PAGE):
            yield from (key[1:] for key in page if key[1:] not in self._pending)
            start = page[-1] + b"\0"

    def commit(self, offset: int) -> None:
        """Keep what was put, and that it is the changelog up to `offset`: all of it, or nothing (`RocksDBFailed`)."""
        kept = KEPT.pack(FORM, offset, self.applied, self._count, wall_ms())
        self._batch.put(META, kept)
        self._write(self._batch)
        self._batch = self._new_batch()
        self._pending.clear()
        self.offset = offset

    # When runs may go.

    def expired(self, now_ms: int, surplus: int, most: int) -> tuple[list[bytes], int]:
        """Runs that may go now, and how many of them only because there are too many.

        Each is named once, until it is put or popped.
        """
        gone: list[bytes] = []
        early = 0
        moves = self._new_batch()
        for entry in self._page(AGE, bytes((AGE[0] + 1,)), SHELF_LOOK_MAX):
            at_ms, key = MOMENT.unpack_from(entry, 1)[0], entry[1 + MOMENT.size :]
            if len(gone) >= most or (at_ms > now_ms and len(gone) >= surplus):
                break
            if key in self._leaving:
                continue
            value = self._value(key)
            if value is None:
                moves.delete(entry)
            elif (expiry_ms := EXPIRY.unpack_from(value)[0]) > at_ms:
                moves.delete(entry)
                moves.put(_entry(AGE, expiry_ms, key), b"")
            else:
                self._leaving[key] = entry
                gone.append(key)
                early += at_ms > now_ms
        self._move(moves)
        return gone, early

    # When runs want to be asked.

    def _arm(self, key: bytes, raw: bytes, before: bytes | None) -> None:
        due_ms = _due_ms(raw)
        before_ms = _due_ms(before, EXPIRY.size) if before is not None else 0
        asked = self._asked.pop(key, None)
        if asked is not None:
            self._batch.delete(asked)
        if due_ms and (not before_ms or due_ms < before_ms or asked is not None):
            self._batch.put(_entry(DUE, due_ms, key), b"")

    def set(self, key: bytes, due_ms: int) -> None:
        """Nothing: it stands in front of the state that is put."""

    def again(self, key: bytes, due_ms: int) -> None:
        """A run that was asked wants to be asked at this log time instead."""
        moves = self._new_batch()
        asked = self._asked.pop(key, None)
        if asked is not None:
            moves.delete(asked)
        moves.put(_entry(DUE, due_ms, key), b"")
        self._move(moves)

    def take(self, now_ms: int, most: int) -> list[bytes]:
        """Runs whose time has come, the first one first; each is named once, until it is put again."""
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
        """What is here is of another log: it goes when this is closed."""
        self._doomed = True

    def close(self) -> None:
        """Let go of the files. What was not kept is lost."""
        with contextlib.suppress(Exception):  # a full disk, once more
            self._db.close()
        self._db = None
        if self._doomed:
            shutil.rmtree(self._path, ignore_errors=True)

    def _value(self, key: bytes) -> bytes | None:
        if key in self._pending:
            return self._pending[key]
        try:
            found: bytes | None = self._db.get(STATE + key)
        except Exception as problem:
            raise self._spoiled(problem) from problem
        return found

    def _page(self, start: bytes, end: bytes, most: int) -> list[bytes]:
        """Keys from `start` to before `end`, at most so many. No iterator stays open: it would keep the files."""
        found: list[bytes] = []
        try:
            walk = self._db.iter()
            walk.seek(start)
            while walk.valid() and len(found) < most and (key := walk.key()) < end:
                found.append(key)
                walk.next()
            walk.status()
        except Exception as problem:
            raise self._spoiled(problem) from problem
        return found

    def _move(self, moves: Any) -> None:
        if not moves.is_empty():
            self._write(moves)

    def _write(self, batch: Any) -> None:
        try:
            self._db.write(batch)
        except Exception as problem:
            raise _failed(self._path, problem) from problem

    def _spoiled(self, problem: Exception) -> RocksDBFailed:
        """What cannot be read is not used again: the next life reads the changelog."""
        if str(problem).startswith("Corruption"):
            with contextlib.suppress(OSError):
                (self._path / SPOILED).touch()
        return _failed(self._path, problem)


def _failed(path: Path, problem: Exception) -> RocksDBFailed:
    return RocksDBFailed(
        f"the runs in {path} cannot be kept: {problem}. Is the disk full? "
        "Nothing is lost: what is not kept is not committed, and is stepped again"
    )


def _entry(index: bytes, at_ms: int, key: bytes) -> bytes:
    return index + MOMENT.pack(at_ms) + key


def _due_ms(raw: bytes, start: int = 0) -> int:
    return int(FRAME.unpack_from(raw, start)[1]) if len(raw) >= start + FRAME.size else 0


def wall_ms() -> int:
    """By the clock on the wall: it goes on while nobody runs."""
    return int(time.time() * 1000)
