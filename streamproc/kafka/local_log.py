"""The log of `streamproc up`, read as topics: what reads a topic of Kafka to its end reads it as well.

`STREAMPROC_BROKERS=local:FILE` names it. `streamproc.live.store` writes the file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokafka import ConsumerRecord, TopicPartition

from streamproc.errors import Unavailable
from streamproc.kafka.follow import Follower
from streamproc.kafka.topic_reader import BATCH_RECORDS_MAX, LOG_APPEND_TIME, Extent, Record, TopicReader
from streamproc.model.addresses import local_log

if TYPE_CHECKING:
    from streamproc.settings import Settings

LOST_S: Final = 2.0  # until a log that was not there is looked for again
ROLES: Final = ("turns", "control", "runs")
_RECORDS: Final = (
    "SELECT position, run_id, at_ms, value FROM records WHERE role = ? AND position BETWEEN ? AND ? ORDER BY position"
)
_STATUSES: Final = (
    "SELECT position, run_id, heard_ms, status FROM runs WHERE position BETWEEN ? AND ? ORDER BY position"
)


class LocalTopicReader(TopicReader):
    """A topic in the log of `streamproc up`. It has one partition."""

    def __init__(self, db: sqlite3.Connection, topic: str, role: str) -> None:
        self._db, self._role = db, role
        super().__init__(None, topic, {0: Extent(0, self.end())})  # type: ignore[arg-type]  # there is no consumer

    def end(self) -> int:
        """Return the position after the last record of the log, of any topic."""
        return int(self._db.execute("SELECT coalesce(max(position), 0) + 1 FROM records").fetchone()[0])

    async def batches(self) -> AsyncIterator[list[Record]]:
        """Yield the records in batches."""
        for first in range(self.extents[0].begin, self.extents[0].end, BATCH_RECORDS_MAX):
            last = min(first + BATCH_RECORDS_MAX, self.extents[0].end) - 1
            if batch := list(self.read(self.topic, self._role, first, last)):
                yield batch

    def read(self, topic: str, role: str, first: int, last: int) -> Iterator[Record]:
        """Yield the records of a topic between two positions, both included."""
        if role == "runs":
            rows = self._db.execute(_STATUSES, (first, last))
        else:
            rows = self._db.execute(_RECORDS, (role, first, last))
        for position, run_id, at_ms, value in rows:
            key = run_id.encode()
            yield ConsumerRecord(
                topic, 0, position, at_ms, LOG_APPEND_TIME, key, value, None, len(key), len(value), ()
            )  # fmt: skip


@contextmanager
def open_local(settings: Settings, path: Path, role: str) -> Iterator[LocalTopicReader]:
    """Open a reader of the log as a topic. Raises `Unavailable` if there is no such log."""
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be read ({error}): start `streamproc up`, or name --brokers") from None
    try:
        yield LocalTopicReader(db, settings.topic(role), role)
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be read ({error})") from None
    finally:
        db.close()


class LocalFollower(Follower):
    """Follows the log of `streamproc up` in place of topics, as a `Follower` does. Topics that it does not have are
    `missing`."""

    async def run(self) -> None:
        """Read, and read again what is new, until cancelled."""
        path, roles = local_log(self._settings.brokers), {self._settings.topic(role): role for role in ROLES}
        assert path is not None
        self.missing = tuple(sorted(self._topics.keys() - roles.keys()))
        followed: tuple[int, int] | None = None
        while True:
            try:
                file = _identity(path)
                with open_local(self._settings, path, "turns") as reader:
                    if followed not in (None, file):
                        await self._begin_again(path)
                    followed = file
                    self.connected = True
                    self._outage.over()
                    while _identity(path) == file:
                        await self._look(reader, roles)
                        await asyncio.sleep(self._poll_ms / 1000)
            except Unavailable as error:
                self._outage.lost(error)
                self.connected = False
                await asyncio.sleep(LOST_S)

    async def _begin_again(self, path: Path) -> None:
        """Read a file from its beginning that is there in place of the one before: `streamproc up` moves a damaged one
        aside."""
        self._outage.log.warning("%s is another file than before, and read from the beginning", path)
        self.caught_up = False
        self.positions.clear()
        if self._on_recreated is not None:
            await self._on_recreated()

    async def _look(self, reader: LocalTopicReader, roles: Mapping[str, str]) -> None:
        """Pass on what has come since the last look."""
        end = reader.end()
        self.freshness = time.monotonic()
        for name in self._order:
            if name not in roles:
                continue
            at = TopicPartition(name, 0)
            self.ends[at] = end
            for first in range(self.positions.setdefault(at, 0), end, BATCH_RECORDS_MAX):
                last = min(first + BATCH_RECORDS_MAX, end) - 1
                if batch := list(reader.read(name, roles[name], first, last)):
                    await self._handle({at: batch})
                self.positions[at] = last + 1
        if self._before_poll is not None:
            await self._before_poll(None)  # type: ignore[arg-type]  # there is no consumer
        if not self.caught_up:
            self.caught_up = True
            if self._on_caught_up is not None:
                self._on_caught_up()


def listens(path: Path) -> bool:
    """Whether a process listens at a socket of this machine."""
    with socket.socket(socket.AF_UNIX) as own:
        own.setblocking(False)
        return own.connect_ex(os.fsencode(path)) in (0, errno.EAGAIN)  # EAGAIN: it has much to do


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one at the same place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
