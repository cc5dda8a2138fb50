"""Reads the topics into a read model: to their ends, then live, for as long as it is asked to.

It uses no consumer group and commits nothing; the model keeps the offsets. Everything but turns is read first: a page
without a halted run is wrong, one without the last turns is only late.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from streamproc.errors import Unavailable
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import home_of
from streamproc.kafka.session import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_MS,
    Backoff,
    Reconnect,
    as_unavailable,
    find_partitions,
    probe_brokers,
    reconnecting,
    run_in_own_task,
    run_until_one_ends,
)
from streamproc.kafka.topics import accounts_topic
from streamproc.read_model.changes import EVERY_S, ChangeSubscription
from streamproc.read_model.rows import Changes

if TYPE_CHECKING:
    from streamproc.kafka.reading import Record
    from streamproc.read_model.model import ReadModel
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 2_000  # of one poll, so that the event loop is blocked for a few ms at most
FETCH_BYTES: Final = 1 << 20
TURNS_BACK_MS: Final = 86_400_000
TURNS_BACK_MAX: Final = 2_000_000  # of all partitions: a minute or so
ENDS_EVERY_S: Final = 2.0
PARTITIONS_EVERY_S: Final = 15.0
READ_TIMEOUT_S: Final = 20.0
CLOSE_TIMEOUT_S: Final = 2.0
NEEDED: Final = ("runs", "control", "commands")
OPTIONAL: Final = ("turns", "spend", "dead-letter")  # and the changelog of accounts: an ACL may hide them
SINCE: Final = frozenset({"control", "spend", "dead-letter"})  # read from a time; compacted topics are read whole

Place = tuple[str, int]


class ModelReader:
    """Keeps a model up to date. `since_ms` (epoch ms) is how far back decisions and dead letters are read."""

    def __init__(self, settings: Settings, model: ReadModel, *, since_ms: int) -> None:
        self.model = model
        self.trouble: Unavailable | None = None
        """Why nothing new is read; None while the connection works."""
        self.missing: tuple[str, ...] = ()
        """Topics that do not exist or that this user must not read; what they hold is not shown."""
        self.caught_up = False
        """Whether all that was there at the start is read."""
        self.version = 0
        """Grows with each change that subscribers are told of: a page that was made before knows that it is old."""
        self._settings = settings
        self._since_ms = since_ms
        self._subscriptions: set[ChangeSubscription] = set()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-model")
        self._places: dict[TopicPartition, Place] = {}
        self._first: dict[Place, int] = {}
        self._wanted: dict[Place, int] = {}  # the ends that were seen at the start
        model.trust(record_signer(settings), command_signer(settings))
        model.bind(f"{settings.topic('runs')} {settings.worker_group}")

    async def start(self) -> None:
        """Begin to read; returns at once. A broker that is away is waited for."""
        self._task = asyncio.create_task(reconnecting(self._session, self._report, purpose="reading the topics"))

    async def stop(self) -> None:
        """End reading. The model stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)  # what it applies now ends with it

    @property
    def progress(self) -> float:
        """The share of what was there at the start that is read, 0 to 1."""
        return 1.0 if self.caught_up else self.model.read_share

    def subscribe(self, every_s: float = EVERY_S) -> ChangeSubscription:
        """Return what tells of changes from now on. Close it."""
        made = ChangeSubscription(self._subscriptions.discard, every_s)
        self._subscriptions.add(made)
        return made

    async def _session(self, backoff: Backoff) -> None:
        consumer = AIOKafkaConsumer(
            **connection_options(self._settings), enable_auto_commit=False, auto_offset_reset="none",
            request_timeout_ms=REQUEST_TIMEOUT_MS, max_poll_records=RECORDS_MAX, max_partition_fetch_bytes=FETCH_BYTES,
        )  # fmt: skip
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await access.start(consumer, self._settings)
                self._places = await self._find_places(consumer)
                consumer.assign(list(self._places))
            await self._seek(consumer)
            backoff.reset()
            if self.trouble is not None:
                log.warning("reading the topics again")
                self.trouble = None
            await run_until_one_ends(probe_brokers(consumer._client), self._watch_log(consumer), self._follow(consumer))
        finally:
            await _close(consumer)

    async def _find_places(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, Place]:
        names = {self._settings.topic(role): role for role in (*NEEDED, *OPTIONAL)}
        names[accounts_topic(self._settings)] = "accounts"
        if not self.model.turns:
            del names[self._settings.topic("turns")]
        await find_partitions(consumer._client, self._settings, *NEEDED)  # raises, and names what is missing
        cluster = await consumer._client.fetch_all_metadata()
        found = {name: sorted(cluster.partitions_for_topic(name) or ()) for name in names}
        missing = tuple(sorted(name for name, numbers in found.items() if not numbers))
        if missing and missing != self.missing:
            log.warning("what these topics hold is not shown, as they cannot be seen: %s", ", ".join(missing))
        self.missing = missing
        self.model.home = home_of(self._settings, len(found.get(self._settings.topic("turns"), ())))
        return {TopicPartition(name, number): (names[name], number) for name in found for number in found[name]}

    async def _seek(self, consumer: AIOKafkaConsumer) -> None:
        """Go on where the model ends; where it has nothing, begin at the configured time."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            begins = await consumer.beginning_offsets(list(self._places))
            ends = await consumer.end_offsets(list(self._places))
        if any((self.model.next_offset(*place) or 0) > ends[at] for at, place in self._places.items()):
            log.warning("the topics were made again: the read model starts from nothing")
            await self._in_thread(self.model.clear)
            self._first.clear()
            self._wanted.clear()
            self.caught_up = self.model.caught_up = False
        fresh = [at for at, place in self._places.items() if self.model.next_offset(*place) is None]
        firsts = await self._firsts(consumer, fresh, begins, ends)
        for at, place in self._places.items():
            known = self.model.next_offset(*place)
            first = firsts[at] if known is None else max(known, begins[at])
            self._first.setdefault(place, first)
            self._wanted.setdefault(place, ends[at])
            consumer.seek(at, first)
        self._note_ends(ends)
        self._note_progress(consumer)

    async def _firsts(
        self,
        consumer: AIOKafkaConsumer,
        fresh: list[TopicPartition],
        begins: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return where to begin in partitions of which nothing was read."""
        turns_ms = max(self._since_ms, int(time.time() * 1000) - TURNS_BACK_MS)
        times = {at: self._since_ms for at in fresh if self._places[at][0] in SINCE}
        turns = [at for at in fresh if self._places[at][0] == "turns"]
        times |= dict.fromkeys(turns, turns_ms)
        async with asyncio.timeout(READ_TIMEOUT_S):
            found = await consumer.offsets_for_times(times) if times else {}
        firsts = dict(begins)
        for at in times:
            known = found.get(at)
            firsts[at] = ends[at] if known is None else max(known.offset, begins[at])
        for at in turns:
            firsts[at] = max(firsts[at], ends[at] - TURNS_BACK_MAX // len(turns))
        return firsts

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        late = [at for at, (role, _) in self._places.items() if role == "turns"]
        early = [at for at in self._places if at not in late]
        if late and not self._read(consumer, early):
            consumer.pause(*late)
        while True:
            batches = await consumer.getmany(timeout_ms=500)
            if batches:
                self._publish(await self._in_thread(self._apply, batches))
            if late and consumer.paused() and self._read(consumer, early):
                consumer.resume(*late)
            self._note_progress(consumer)
            await asyncio.sleep(0)  # getmany returns without yielding while records are buffered

    def _apply(self, batches: dict[TopicPartition, list[Record]]) -> Changes:
        """Apply what a poll has brought: one change of threads for all of it."""
        changes = Changes()
        for at, records in batches.items():
            changes.add(self.model.apply(self._places[at][0], records))
        return changes

    def _read(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> bool:
        """Return whether these partitions are read to the ends that were seen at the start."""
        return all(self._position(consumer, at) >= self._wanted[self._places[at]] for at in partitions)

    def _position(self, consumer: AIOKafkaConsumer, at: TopicPartition) -> int:
        """Return the next offset to fetch: it also moves over records that were deleted, and transaction marks."""
        state = consumer._subscription.subscription.assignment.state_value(at)
        return int(state.position) if state.has_valid_position else 0

    def _note_progress(self, consumer: AIOKafkaConsumer) -> None:
        self.model.fetched = {place: self._position(consumer, at) for at, place in self._places.items()}
        if self.caught_up:
            return
        read = total = 0
        for at, place in self._places.items():
            first, wanted = self._first[place], self._wanted[place]
            total += max(0, wanted - first)
            read += max(0, min(self._position(consumer, at), wanted) - first)
        self.model.read_share = read / total if total else 1.0
        if read >= total:
            self.caught_up = self.model.caught_up = True
            self._publish(Changes(decisions=True, commands=True))

    async def _watch_log(self, consumer: AIOKafkaConsumer) -> None:
        """Ask for the ends of the log, and whether there are more partitions. Raises `Reconnect` if there are."""
        checked_s = time.monotonic()
        while True:
            await asyncio.sleep(ENDS_EVERY_S)
            async with asyncio.timeout(READ_TIMEOUT_S):
                self._note_ends(await consumer.end_offsets(list(self._places)))
                if time.monotonic() - checked_s > PARTITIONS_EVERY_S:
                    checked_s = time.monotonic()
                    if set(await self._find_places(consumer)) != set(self._places):
                        raise Reconnect

    def _note_ends(self, ends: dict[TopicPartition, int]) -> None:
        self.model.ends = {self._places[at]: end for at, end in ends.items()}

    def _publish(self, changes: Changes) -> None:
        if changes:
            self.version += 1
            for subscription in self._subscriptions:
                subscription.add(changes)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _report(self, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            error = Unavailable(f"the log was cut off while it was read: {error}")
        if isinstance(error, sqlite3.Error):
            error = Unavailable(
                f"the read model cannot be written ({error}): make room on its disk, or name another --db"
            )
        problem = as_unavailable(self._settings, error)
        if self.trouble is None:
            log.warning("what is shown stands still for now; reconnecting: %s", problem)
        self.trouble = problem


async def _close(consumer: AIOKafkaConsumer) -> None:
    for closing in (consumer.stop(), consumer._client.close()):  # `stop` may fail before it closes its client
        with contextlib.suppress(Exception):  # this consumer is abandoned: its errors do not matter
            await run_in_own_task(closing, CLOSE_TIMEOUT_S)
