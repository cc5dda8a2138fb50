"""Runs whose written states are on disk: as many as the disk holds, and known again after a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from streamproc.worker.limits import RUNS_ON_DISK_MAX, SHELF_PENDING_MAX
from streamproc.worker.rocksdb_store import RocksDBStores, wall_ms
from streamproc.worker.tables import Runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamproc.settings import Settings
    from streamproc.worker.partition_store import Change
    from streamproc.worker.rocksdb_store import RocksDBStore
    from streamproc.worker.tables import RunLimits, RunStore

log = logging.getLogger(__name__)


def keep_on_disk(store: RunStore, settings: Settings) -> RocksDBStores:
    """Let a store keep its written runs on disk. Raises `InvalidSettings` where that is impossible."""
    shelves = RocksDBStores(settings)
    store.on_disk = lambda partition: RocksDBRuns(partition, store.census, shelves.open(partition))
    return shelves


class RocksDBRuns(Runs):
    """The runs of one partition, those at work decoded in memory, all others in RocksDB."""

    def __init__(self, partition: int, census: RunLimits, shelf: RocksDBStore) -> None:
        super().__init__(partition, census)
        self._shelf = self._stored = self.alarms = shelf  # type: ignore[assignment]
        self._touched: set[bytes] = set()
        self._read = 0  # records of the changelog
        self.changelog_offset = shelf.offset if shelf.offset >= 0 else None
        self.applied = shelf.applied
        census.runs += len(shelf)

    def known(self) -> Iterator[bytes]:  # type: ignore[override]
        """The keys of all runs; may be walked slowly."""
        for key in list(self.hot):
            if key not in self._shelf:
                yield key
        yield from self._shelf

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None:
        """The broker has these; keep them, together with up to where the changelog is known."""
        changes = list(changes)
        super().stored(changes, last_offset)
        if changes:
            self._shelf.commit(-1 if self.changelog_offset is None else self.changelog_offset)
        self._touched.clear()

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None:
        """Take in a record of the changelog."""
        self._read += 1
        super().restore(key, raw, offset)
        if self._shelf.pending >= SHELF_PENDING_MAX:
            self._keep(offset)

    def restored(self, offset: int) -> None:
        """The changelog was read up to this record, which need not be there any more."""
        self._keep(offset)
        log.info("partition=%d runs=%d, %d records read of the changelog", self.partition, len(self), self._read)
        self._read = 0

    def _keep(self, offset: int) -> None:
        if offset > self._shelf.offset or self._shelf.pending:
            self._shelf.commit(max(offset, self._shelf.offset))
            self.changelog_offset = self._shelf.offset
        self._touched.clear()

    def discard(self) -> None:
        """Forget everything for good, when this is left: it is of a log that is gone."""
        self._shelf.discard()

    def leave(self) -> None:
        """Close: another worker has the partition, or this one ends. What is kept stays, for the day it comes back."""
        self._census.runs -= len(self._shelf)
        self.hot.clear()
        self._shelf.close()

    def _age(self, key: bytes, *, finished: bool) -> None:  # noqa: ARG002 (the shelf reads it from the state)
        self._touched.add(key)

    def _leaving(self, most: int) -> list[bytes]:
        found, early = self._shelf.expired(wall_ms(), self._census.runs - RUNS_ON_DISK_MAX, most)
        self._census.evicted += early
        return [key for key in found if key not in self._touched and key not in self._under_way]
