"""The one reader of topics of everything that reads for as long as it lives: the listener, page and TUI, the worker's
fleet commands, and, as members of consumer groups (`group.py`), notifications and spans.

A `Follower` finds its topics, begins where it was told to or goes on where it was, passes what arrives to one function,
and reconnects for ever. What it reads and what happens then is data and callbacks: one more topic is one more `Topic`.

It depends on aiokafka's internals, of which `deploy` pins the version.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from streamproc.errors import Unavailable
from streamproc.kafka import access, session
from streamproc.kafka.options import connection_options
from streamproc.kafka.vendor import decode_fetches, network_client, next_offset, read_first, untaken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from streamproc.kafka.topic_reader import Record
    from streamproc.settings import Settings

    Batches = dict[TopicPartition, list[Record]]

BEGINNING: Final = -2  # as in Kafka's own requests
END: Final = -1
POLL_MS: Final = 500
RECORDS_MAX: Final = 2_000  # of one poll, so that the event loop is blocked for a few ms at most
CHECK_EVERY_S: Final = 15.0
READ_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to follow. The order of topics is that in which the records of one poll are passed on."""

    name: str
    begin: int = BEGINNING  # or END, or a time in epoch ms: where to begin if none of it was read
    stage: int = 0  # it is read once all earlier stages are read to the ends that were seen at the start
    records_max: int | None = None  # how many of its records are read at most that are there at the start
    optional: bool = False  # it may be missing, or hidden by an ACL


class Follower:
    """Follows topics for as long as `run` runs, in no consumer group.

    `handle` gets what a poll has brought. If it raises, the session ends, and the same records are read again.
    `positions` say where to go on, by partition. `before_poll` gets the consumer. `on_caught_up` is called when all is
    read that was there at the start, `on_recreated` when topics were deleted and made again: it may clear `positions`.
    """

    close_timeout_s: ClassVar[float] = 2.0

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[Topic],
        handle: Callable[[Batches], Awaitable[None]],
        outage: session.Outage,
        *,
        positions: dict[TopicPartition, int] | None = None,
        before_poll: Callable[[AIOKafkaConsumer], Awaitable[None]] | None = None,
        on_caught_up: Callable[[], None] | None = None,
        on_recreated: Callable[[], Awaitable[None]] | None = None,
        ends_every_s: float = CHECK_EVERY_S,
        poll_ms: int = POLL_MS,
        remedy: str = "",
        **options: Any,
    ) -> None:
        self.positions = {} if positions is None else positions
        """The next offset to read of each partition: everything before is handled."""
        self.ends: dict[TopicPartition, int] = {}
        """The ends of the log, when the broker was last asked."""
        self.freshness: float | None = None
        """When the broker last answered, by the monotonic clock; None: never. It is asked every two seconds."""
        self.missing: tuple[str, ...] = ()
        """Optional topics that do not exist or that this user must not read."""
        self.connected = False
        self.caught_up = False
        """Whether all that was there at the start is read."""
        self._settings = settings
        self._topics = {topic.name: topic for topic in topics}
        self._order = {name: number for number, name in enumerate(self._topics)}
        self._handle = handle
        self._outage = outage
        self._before_poll = before_poll
        self._on_caught_up = on_caught_up
        self._on_recreated = on_recreated
        self._ends_every_s = ends_every_s
        self._poll_ms = poll_ms
        self._remedy = remedy  # for missing topics
        self._options = {"auto_offset_reset": "none", "max_poll_records": RECORDS_MAX, **options}
        self._stop = asyncio.Event()
        self._places: list[TopicPartition] = []
        self._hidden: set[str] = set()  # topics that this user may not read
        self._first: dict[TopicPartition, int] = {}  # where reading began
        self._wanted: dict[TopicPartition, int] = {}  # the ends that were seen at the start
        self._begun = False

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is read; None while the connection works."""
        return self._outage.trouble

    @property
    def progress(self) -> float:
        """The share of what was there at the start that is read, 0 to 1."""
        total = sum(end - self._first[at] for at, end in self._wanted.items())
        left = sum(max(0, end - self.positions[at]) for at, end in self._wanted.items())
        return 1.0 if self.caught_up else 1 - left / total if total else 0.0

    async def run(self) -> None:
        """Connect, read and reconnect, until cancelled."""
        await session.reconnecting(self._session, self._report, purpose=self._outage.purpose, stop=self._stop)

    async def _session(self, backoff: session.Backoff) -> None:
        consumer = AIOKafkaConsumer(
            **connection_options(self._settings), enable_auto_commit=False,
            request_timeout_ms=session.REQUEST_TIMEOUT_MS, **self._options,
        )  # fmt: skip
        try:
            async with asyncio.timeout(session.CONNECT_TIMEOUT_S):
                await access.start(consumer, self._settings)
                decode_fetches(consumer)
                self._places = await self._find_places(network_client(consumer))
            self._note_answer()
            await self._attach(consumer)
            probing = session.probe_brokers(network_client(consumer), self._note_answer)
            await session.run_until_one_ends(probing, self._watch(consumer), self._read(consumer, backoff))
        except TopicAuthorizationFailedError as error:
            self._hide(error)
            raise session.Reconnect from None
        finally:
            self.connected = False
            await self._detach(consumer)

    def _hide(self, error: TopicAuthorizationFailedError) -> None:
        """Leave out an optional topic that this user may see and not read. Raises the error if it is another one."""
        topic = error.args[0] if error.args else ""  # a group's coordinator gives a set
        if not isinstance(topic, str) or topic not in self._topics or not self._topics[topic].optional:
            raise error
        self._hidden.add(topic)

    def _note_answer(self) -> None:
        self.freshness = time.monotonic()

    def _report(self, error: Exception) -> None:
        self._outage.lost(session.as_unavailable(self._settings, error))

    async def _find_places(self, client: Any) -> list[TopicPartition]:
        needed = [topic.name for topic in self._topics.values() if not topic.optional]
        seen = await session.find_partitions(client, self._settings, needed, self._topics, self._remedy)
        found = {name: numbers for name, numbers in seen.items() if name not in self._hidden}
        missing = tuple(sorted(self._topics.keys() - found.keys()))
        if missing and missing != self.missing:
            self._outage.log.warning("not shown, as these topics cannot be seen: %s", ", ".join(missing))
        self.missing = missing
        return [TopicPartition(name, number) for name in self._topics for number in found.get(name, ())]

    async def _attach(self, consumer: AIOKafkaConsumer) -> None:
        """Go on where it was; where nothing was read, begin as each topic says."""
        read_first(consumer)
        consumer.assign(self._places)
        async with asyncio.timeout(READ_TIMEOUT_S):
            begins = await consumer.beginning_offsets(self._places)
            self.ends = dict(await consumer.end_offsets(self._places))
        recreated = {at.topic for at in self._places if self.positions.get(at, 0) > self.ends[at]}
        if recreated:
            self._outage.log.warning("made again, and read from the beginning: %s", ", ".join(sorted(recreated)))
            self.caught_up = False
            for at in [at for at in self.positions if at.topic in recreated]:
                del self.positions[at]
            if self._on_recreated is not None:
                await self._on_recreated()
        firsts = await self._firsts(consumer, begins)
        for at in self._places:
            self.positions[at] = max(firsts.get(at, 0), self.positions.get(at, 0), begins[at])
            consumer.seek(at, self.positions[at])
        if not self.caught_up:
            self._wanted = {at: max(self.ends[at], self.positions[at]) for at in self._places}
            self._first = {at: min(self._first.get(at, self.positions[at]), self._wanted[at]) for at in self._places}
        self._begun = self.connected = True
        self._outage.over()

    async def _firsts(self, consumer: AIOKafkaConsumer, begins: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where to begin in partitions of which nothing was read."""
        fresh = [at for at in self._places if at not in self.positions]
        times = {at: self._topics[at.topic].begin for at in fresh if self._topics[at.topic].begin >= 0}
        async with asyncio.timeout(READ_TIMEOUT_S):
            found = await consumer.offsets_for_times(times) if times else {}
        firsts: dict[TopicPartition, int] = {}
        for at in fresh:
            topic, known = self._topics[at.topic], found.get(at)
            late = at in times or (topic.begin == END and not self._begun)  # later, new partitions are read whole
            firsts[at] = known.offset if known is not None else self.ends[at] if late else begins[at]
            if topic.records_max is not None:
                count = sum(one.topic == at.topic for one in fresh)
                firsts[at] = max(firsts[at], self.ends[at] - topic.records_max // count)
        return firsts

    async def _read(self, consumer: AIOKafkaConsumer, backoff: session.Backoff) -> None:
        while not self._stop.is_set():
            if not self.caught_up:
                self._open_stages(consumer)
            if self._before_poll is not None:
                await self._before_poll(consumer)
            batches: Batches = await consumer.getmany(timeout_ms=self._poll_ms)
            backoff.reset()
            if batches:
                self._note_answer()
                await self._handle(dict(sorted(batches.items(), key=lambda batch: self._order[batch[0].topic])))
            self.positions.update(self._fetched(consumer))
            await asyncio.sleep(0)  # getmany returns without yielding while records are buffered

    def _fetched(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        """Return the next offset to fetch of each partition: beyond deleted records and the marks of transactions."""
        return {at: offset for at in self._places if (offset := next_offset(consumer, at)) is not None}

    def _open_stages(self, consumer: AIOKafkaConsumer) -> None:
        """Pause the topics whose turn has not come; note when all is read that was there at the start."""
        unread = [self._topics[at.topic].stage for at, end in self._wanted.items() if self.positions[at] < end]
        later = {at for at in self._places if unread and self._topics[at.topic].stage > min(unread)}
        consumer.resume(*(consumer.paused() - later))
        consumer.pause(*(later - consumer.paused()))
        if not unread:
            self.caught_up = True
            if self._on_caught_up is not None:
                self._on_caught_up()

    async def _watch(self, consumer: AIOKafkaConsumer) -> None:
        """Ask for the ends of the log. Raises `Reconnect` if there are other partitions, and `Unavailable` if reading
        has stalled: records are there, and none are fetched."""
        behind: dict[TopicPartition, int] = {}
        checked_s = time.monotonic()
        while True:
            await asyncio.sleep(self._ends_every_s)
            async with asyncio.timeout(READ_TIMEOUT_S):
                self.ends = dict(await consumer.end_offsets(self._places))
            self._note_answer()
            if time.monotonic() - checked_s < CHECK_EVERY_S:
                continue
            checked_s = time.monotonic()
            if await self._has_other_partitions(network_client(consumer)):
                raise session.Reconnect
            waiting = {*consumer.paused(), *untaken(consumer)}  # for their stage, or for the handler
            fetched = {at: position for at, position in self._fetched(consumer).items() if at not in waiting}
            stalled = [at for at, position in behind.items() if fetched.get(at) == position]
            if stalled:
                raise Unavailable(f"reading has stalled at {', '.join(map(str, stalled))}")
            behind = {at: position for at, position in fetched.items() if position < self.ends[at]}

    async def _has_other_partitions(self, client: Any) -> bool:
        if self.missing:
            return await self._find_places(client) != self._places
        shown = self._topics.keys() - self._hidden
        found = {name: client.cluster.partitions_for_topic(name) or () for name in shown}  # as last probed
        return {TopicPartition(name, number) for name in found for number in found[name]} != set(self._places)

    async def _detach(self, consumer: AIOKafkaConsumer) -> None:
        await session.abandon(consumer, self.close_timeout_s)
