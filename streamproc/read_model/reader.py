"""Reads the topics into a read model: to their ends, then live, for as long as it is asked to.

It uses no consumer group and commits nothing; the model keeps the offsets. Everything but turns is read first: a page
without a halted run is wrong, one without the last turns is only late.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from aiokafka import TopicPartition

from streamproc.errors import Unavailable
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.fleet.watching import Watching, watching_of
from streamproc.fleet.worker_listener import note_contact
from streamproc.fleet.workers import ROLE as WORKERS, Workers
from streamproc.kafka.follow import BEGINNING, Follower, Topic
from streamproc.kafka.local_log import LocalFollower, listens
from streamproc.kafka.partitioning import home_of
from streamproc.kafka.session import Outage
from streamproc.kafka.topics import accounts_topic
from streamproc.model.addresses import local_log
from streamproc.read_model.rows import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from streamproc.kafka.follow import Batches
    from streamproc.read_model.model import ReadModel
    from streamproc.settings import Settings

EVERY_S: Final = 0.1  # a person sees no more than ten updates a second

log = logging.getLogger(__name__)
FETCH_BYTES: Final = 1 << 20
TURNS_BACK_MS: Final = 86_400_000
TURNS_BACK_MAX: Final = 2_000_000  # of all partitions: a minute or so
ENDS_EVERY_S: Final = 1.0
WATCHING_S: Final = 0.2  # many open pages ask
SILENT_S: Final = 4.5  # the broker is asked every second, and every two where that fails
NEEDED: Final = ("runs", "control", "commands")
OPTIONAL: Final = (
    "activity",
    "turns",
    "spend",
    "dead-letter",
    WORKERS,
)  # and the changelog of accounts: an ACL may hide them
SINCE: Final = frozenset({"control", "spend", "dead-letter"})  # read from a time; compacted topics are read whole


class ChangeSubscription:
    """What has changed since the last call of `changed`: a set of runs, not of events, so a slow reader holds no more
    than there are runs. Belongs to one event loop."""

    def __init__(self, closed: Callable[[ChangeSubscription], None], every_s: float = EVERY_S) -> None:
        self.last = Changes()
        """What else the last answer was about: decisions, commands, accounts, refused records."""
        self._closed = closed
        self._every_s = every_s
        self._changes = Changes()
        self._wake = asyncio.Event()
        self._answered_s = 0.0

    def add(self, changes: Changes) -> None:
        """Add the changes of a batch."""
        self._changes.add(changes)
        self._wake.set()

    async def changed(self) -> set[str]:
        """Wait for a change, but answer at most every `every_s` seconds; return the runs that have changed.

        The set is empty if only something else has, which `last` tells.
        """
        await self._wake.wait()
        await asyncio.sleep(max(0.0, self._answered_s + self._every_s - time.monotonic()))
        self._answered_s = time.monotonic()
        self._wake.clear()
        self.last, self._changes = self._changes, Changes()
        return self.last.run_ids

    def close(self) -> None:
        """Get no more changes."""
        self._closed(self)


class ModelReader:
    """Keeps a model up to date. `since_ms` (epoch ms) is how far back decisions and dead letters are read; `up_socket`
    is where the `streamproc up` listens whose log stands in for topics."""

    def __init__(self, settings: Settings, model: ReadModel, *, since_ms: int, up_socket: Path | None = None) -> None:
        self.model = model
        self._up_socket = up_socket
        self._settings = settings
        self.version = 0
        """Grows with each change that subscribers are told of: a page that was made before knows that it is old."""
        self._subscriptions: set[ChangeSubscription] = set()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-model")
        self.workers = Workers(record_signer(settings), settings.shadow)
        """The workers, by their heartbeats. They are kept in memory: a restart reads the topic again."""
        self._watching: Watching | None = None
        self._watched_s = 0.0
        model.trust(record_signer(settings), command_signer(settings))
        model.bind(f"{settings.topic('runs')} {settings.worker_group}")
        topics = {role: _topic(settings, role, since_ms) for role in (*NEEDED, *OPTIONAL, "accounts")}
        if not model.turns:
            del topics["turns"]
        self._heartbeats = TopicPartition(settings.topic(WORKERS), 0)
        self._roles = {topic.name: role for role, topic in topics.items()}
        known = model.next_offsets().items()
        outage = Outage(log, "reading the topics", "what is shown stands still for now", "reading the topics again")
        self.follower = (Follower if local_log(settings.brokers) is None else LocalFollower)(
            settings, tuple(topics.values()), self._apply, outage,
            positions={TopicPartition(topics[role].name, at): next_ for (role, at), next_ in known if role in topics},
            before_poll=self._note_progress, on_caught_up=self._note_caught_up, on_recreated=self._clear,
            ends_every_s=ENDS_EVERY_S, max_partition_fetch_bytes=FETCH_BYTES,
        )  # fmt: skip
        """Tells how old the model is: `trouble`, `missing`, `caught_up`, `progress`, `freshness`."""

    async def start(self) -> None:
        """Begin to read; returns at once. A broker that is away is waited for."""
        self._task = asyncio.create_task(self.follower.run())

    async def stop(self) -> None:
        """End reading. The model stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)  # what it applies now ends with it

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing new is read; None while the connection works."""
        return self.follower.trouble

    @property
    def freshness(self) -> float | None:
        """When the broker last answered, by the monotonic clock; None: never. It is asked every two seconds."""
        return self.follower.freshness

    @property
    def missing(self) -> tuple[str, ...]:
        """Topics that do not exist or that this user must not read; what they hold is not shown."""
        return self.follower.missing

    @property
    def caught_up(self) -> bool:
        """Whether all that was there at the start is read."""
        return self.follower.caught_up

    @property
    def progress(self) -> float:
        """The share of what was there at the start that is read, 0 to 1."""
        return self.follower.progress

    @property
    def has_workers(self) -> bool:
        """Whether the topic of heartbeats is there, and may be read."""
        return self._heartbeats.topic not in self.missing

    @property
    def silent_since_ms(self) -> int | None:
        """Since when the broker does not answer (wall clock); 0: it never has; None: it does."""
        if self.freshness is None:
            return 0 if self.trouble is not None else None
        silent_s = time.monotonic() - self.freshness
        return self.as_of_ms if self.trouble is not None or silent_s > SILENT_S else None

    @property
    def as_of_ms(self) -> int:
        """When the broker last answered (wall clock): what is shown is not older, once all is read. 0: never."""
        if self.freshness is None:
            return 0
        return int((time.time() - (time.monotonic() - self.freshness)) * 1000)

    def watching(self) -> Watching:
        """Return whether workers decide, as far as this reader knows: as of now, or a moment ago."""
        now_s = time.monotonic()
        if self._watching is None or now_s - self._watched_s > WATCHING_S:
            ends = {number: end for (role, number), end in self.model.ends.items() if role == "turns"}
            self._watching = watching_of(self.workers, now_s, ends=ends or None, lag_warn_s=self._settings.lag_warn_s)
            self._watched_s = now_s
        return self._watching

    @property
    def up_runs(self) -> bool | None:
        """Whether the `streamproc up` runs that writes the log which is read; None: topics are read."""
        return None if self._up_socket is None else listens(self._up_socket)

    def subscribe(self, every_s: float = EVERY_S) -> ChangeSubscription:
        """Return what tells of changes from now on. Close it."""
        made = ChangeSubscription(self._subscriptions.discard, every_s)
        self._subscriptions.add(made)
        return made

    async def _apply(self, batches: Batches) -> None:
        """Apply what a poll has brought, beside the event loop: one change of threads for all of it."""
        for at in [one for one in batches if one.topic == self._heartbeats.topic]:  # it may have several partitions
            for record in batches.pop(at):
                self.workers.apply(record, time.monotonic())
        if not batches:
            return
        try:
            self._publish(await self._in_thread(self._changes_of, batches))
        except sqlite3.Error as error:
            what = f"the read model cannot be written ({error}): make room on its disk, or name another --db"
            raise Unavailable(what) from error

    def _changes_of(self, batches: Batches) -> Changes:
        changes = Changes()
        for at, records in batches.items():
            changes.add(self.model.apply(self._roles[at.topic], records))
        return changes

    async def _note_progress(self, _consumer: object) -> None:
        partitions = sum(self._roles[at.topic] == "turns" for at in self.follower.ends)
        self.model.home = home_of(self._settings, partitions)
        self.model.fetched = self._by_role(self.follower.positions)
        self.model.ends = self._by_role(self.follower.ends)
        self.model.read_share = self.follower.progress
        note_contact(self.workers, self.follower, self._heartbeats)

    def _note_caught_up(self) -> None:
        self.model.caught_up = True
        self._publish(Changes(decisions=True, commands=True))

    async def _clear(self) -> None:
        await self._in_thread(self.model.clear)
        self.model.caught_up = False
        self.follower.positions.clear()

    def _by_role(self, offsets: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
        return {(self._roles[at.topic], at.partition): offset for at, offset in offsets.items()}

    def _publish(self, changes: Changes) -> None:
        if changes:
            self.version += 1
            for subscription in self._subscriptions:
                subscription.add(changes)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _topic(settings: Settings, role: str, since_ms: int) -> Topic:
    """Return where to begin in a topic, and when: turns come last."""
    name, optional = accounts_topic(settings) if role == "accounts" else settings.topic(role), role not in NEEDED
    if role == "turns":
        turns_ms = max(since_ms, int(time.time() * 1000) - TURNS_BACK_MS)
        return Topic(name, turns_ms, stage=1, records_max=TURNS_BACK_MAX, optional=optional)
    stage = 1 if role == "activity" else 0  # it says more of runs that are known
    return Topic(name, since_ms if role in SINCE else BEGINNING, stage=stage, optional=optional)
