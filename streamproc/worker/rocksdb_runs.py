"""Runs whose written states are in RocksDB: as many as the disk holds, and available again after a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import cast

from streamproc.model.time_range import wall_ms
from streamproc.settings import Settings
from streamproc.worker.eviction import Leaving, surplus
from streamproc.worker.limits import ROCKSDB_PENDING_MAX, RUNS_ON_DISK_MAX
from streamproc.worker.partition_store import Change
from streamproc.worker.records import Fetched
from streamproc.worker.rocksdb_store import RocksDBStore, RocksDBStores
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.runs_table import RunStore
from streamproc.worker.tables import Runs

log = logging.getLogger(__name__)


def keep_runs_in_rocksdb(store: RunStore, settings: Settings) -> RocksDBStores:
    """Let a store keep its written runs in RocksDB. Raises `InvalidSettings` if that is impossible."""
    stores = RocksDBStores(settings)
    store.run_limits.runs_max = RUNS_ON_DISK_MAX
    store.on_disk = lambda partition: RocksDBRuns(partition, store.run_limits, stores.open(partition))
    return stores


class RocksDBRuns(Runs):
    """The runs of one partition: active ones decoded in memory, all others in RocksDB."""

    def __init__(self, partition: int, run_limits: RunLimits, store: RocksDBStore) -> None:
        super().__init__(partition, run_limits)
        self._rocksdb = self._stored = self.deadline_queue = store  # type: ignore[assignment]
        self._touched: set[bytes] = set()
        self._read = 0  # records of the changelog
        self.changelog_offset = store.offset if store.offset >= 0 else None
        self.applied = store.applied
        run_limits.runs += len(store)

    def ranks(self) -> list[int]:
        """Return how many runs of each rank there are."""
        return self._rocksdb.counts

    def known(self) -> Iterator[bytes]:  # type: ignore[override]
        """Yield the keys of all runs. Runs may be added and removed during the iteration."""
        for key in list(self.active):
            if key not in self._rocksdb:
                yield key
        yield from self._rocksdb

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None:
        """Write acknowledged changes to RocksDB, together with the changelog offset."""
        changes = list(changes)
        super().stored(changes, last_offset)
        if changes:
            self._rocksdb.commit(-1 if self.changelog_offset is None else self.changelog_offset)
        self._touched.clear()

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None:
        """Apply a record of the changelog."""
        self._read += 1
        super().restore(key, raw, offset)
        if self._rocksdb.pending >= ROCKSDB_PENDING_MAX:
            self._commit(offset)

    def restore_batch(self, records: Iterable[Fetched]) -> None:
        """Apply records of the changelog, oldest first."""
        for record in records:
            self.restore(cast(bytes, record.key), record.value, record.offset)

    def restored(self, offset: int) -> None:
        """Note that the changelog was read up to this offset, whose record compaction may have removed."""
        self._commit(offset)
        log.info("partition=%d runs=%d, %d records read from the changelog", self.partition, len(self), self._read)
        self._read = 0

    def _commit(self, offset: int) -> None:
        if offset > self._rocksdb.offset or self._rocksdb.pending:
            self._rocksdb.commit(max(offset, self._rocksdb.offset))
            self.changelog_offset = self._rocksdb.offset
        self._touched.clear()

    def discard(self) -> None:
        """Delete everything on `leave`: it belongs to a topic that was deleted."""
        self._rocksdb.discard()

    def leave(self) -> None:
        """Close the files, which stay for the time when the partition comes back."""
        self._limits.runs -= len(self._rocksdb)
        self.active.clear()
        self._rocksdb.close()

    def _age(self, key: bytes, rank: int) -> None:  # noqa: ARG002 (the store reads it from the state)
        self._touched.add(key)

    def _leaving(self, most: int) -> list[Leaving]:
        found = self._rocksdb.expired(wall_ms(), surplus(self.ranks(), self._limits.runs_share), most)
        busy = (self._touched, self._under_way, self.dirty)
        return [leaving for leaving in found if not any(leaving.key in keys for keys in busy)]
