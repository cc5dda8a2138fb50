"""A Kafka cluster as the worker sees it: append-only logs, producers that may fail half way, a consumer group.

It does everything that a real broker may do: take long, be away for a while, acknowledge late or without an offset,
refuse for good before or after it has applied a request, compact, expel a member without heartbeats, and let that
member find out later.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from aiokafka.errors import KafkaError, KafkaTimeoutError

from streamproc.worker.crash_marks import read_mark
from streamproc.worker.publishing import LOG_APPEND_TIME, Publisher
from tests.simulation.loop import Process, SimLoop

EPOCH_MS: Final = 1_767_225_600_000  # 2026-01-01
SESSION_S: Final = 10.0
HEARTBEAT_S: Final = SESSION_S / 4
REFUSES_AFTER_S: Final = 1.0  # so long a producer looks for a place for a batch before it gives up
REBALANCE_S: Final = 30.0  # so long the group waits for members that do not join again

Place = tuple[str, int]
"""A partition: topic and number."""


class Record(NamedTuple):
    """A record, with the fields that a consumer gives."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp_type: int = 1


class Commit(NamedTuple):
    """An offset that was committed, and where every log ended at that moment."""

    place: Place
    offset: int
    ends: dict[Place, int]


class Ack(NamedTuple):
    """What the broker says of a batch it has; -1: it had it already."""

    offset: int
    timestamp: int
    timestamp_type: int


class Refused(KafkaError):
    """The broker refuses the request for good."""


class Cluster:
    """The logs, and what was committed."""

    def __init__(self, loop: SimLoop, rng: random.Random, partitions: int) -> None:
        self.loop = loop
        self.rng = rng
        self.context = contextvars.copy_context()  # of no process: the broker continues whichever process is killed
        self.partitions = partitions
        self.logs: dict[Place, list[Record]] = {}
        self.compacted: dict[Place, set[int]] = {}
        self.committed: dict[Place, int] = {}
        self.metadata: dict[Place, str] = {}
        self.named: dict[tuple[Place, int, int], int] = {}
        """The record that a member's last commit named, by partition, member and generation."""
        self.commits: list[Commit] = []
        self.clock_step_ms = 0
        self._waiting: list[tuple[asyncio.Future[bool], Collection[Any] | None]] = []
        self.down_until_s = 0.0
        self.slow = 1.0
        self.zombies = 0  # workers that were expelled while they ran
        self.outages = 0
        self.in_flight = 0  # batches on their way to the broker, also those of killed processes
        self.owners: dict[int, Process] = {}  # the worker of each partition
        self.intruded: dict[Place, int] = {}  # the first record of another worker than the owner
        self.refusals: list[
            bool
        ] = []  # for each of the next batches that is refused: whether it was taken all the same

    @property
    def late_records(self) -> bool:
        """Whether a worker may have sent records after it had lost their partition."""
        return bool(self.zombies or self.outages)

    def log(self, topic: str, partition: int) -> list[Record]:
        return self.logs.setdefault((topic, partition), [])

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.now_s * 1000) + self.clock_step_ms

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Any = ()) -> int:
        log = self.log(topic, partition)
        log.append(Record(topic, partition, len(log), self.now_ms(), key, value, list(headers)))
        if self._waiting:
            self._wake((topic, partition))
        return len(log) - 1

    def _wake(self, written: Place) -> None:
        still = []
        for waiting in self._waiting:
            future, places = waiting
            if places is not None and written not in places:
                still.append(waiting)
            elif not future.done():
                future.set_result(True)
        self._waiting = still

    def read(self, place: Place, first: int, most: int) -> list[Record]:
        log, gone = self.logs.get(place, []), self.compacted.get(place)
        if not gone:
            return log[first : first + most]
        return [record for record in log[first:] if record.offset not in gone][:most]

    def compact(self, place: Place, end: int, *, lags: bool = True) -> None:
        """Keep the last record of each key among those before `end`.

        While compaction lags, it leaves what came after a late record of a former owner: the topics' lag of ten minutes
        is longer than a schedule, and gives the owner time to write again what that record overwrote.
        """
        if lags:
            end = min(end, self.intruded.get(place, end))
        last = {record.key: record.offset for record in self.logs.get(place, [])[:end]}
        gone = set(range(min(end, len(self.logs.get(place, []))))) - set(last.values())
        self.compacted.setdefault(place, set()).update(gone)

    def commit(self, place: Place, offset: int, metadata: str) -> None:
        self.committed[place] = offset
        self.metadata[place] = metadata
        self.commits.append(Commit(place, offset, {place: len(log) for place, log in self.logs.items()}))

    def delay_s(self) -> float:
        """How long a message is on its way, to the broker or back."""
        away_s = max(0.0, self.down_until_s - self.loop.now_s)
        draw = self.rng.random()
        return away_s + self.slow * (
            0.001 if draw < 0.5 else 0.02 * self.rng.random() if draw < 0.9 else self.rng.random()
        )

    async def news(self, timeout_s: float, places: Collection[Any] | None = None) -> bool:
        """Wait until something is written to one of these places (None: anywhere), for a while; whether it was."""
        future: asyncio.Future[bool] = self.loop.create_future()
        self._waiting.append((future, places))
        timer = self.loop.call_later(timeout_s, lambda: future.done() or future.set_result(False))
        written = await future
        timer.cancel()
        return written

    async def pause(self) -> None:
        await asyncio.sleep(self.delay_s())


class Batch:
    """Records of one request."""

    def __init__(self, most: int) -> None:
        self.records: list[tuple[bytes | None, bytes | None, Any]] = []
        self._most = most

    def append(self, *, key: Any, value: Any, timestamp: Any, headers: Any) -> object | None:
        if len(self.records) >= self._most:
            return None
        self.records.append((key, value, headers))
        return self

    def record_count(self) -> int:
        return len(self.records)

    def size(self) -> int:
        """Bytes of its keys and values."""
        return sum(len(key or b"") + len(value or b"") for key, value, _ in self.records)


class Producer:
    """An idempotent producer: of each partition one batch is under way, in order, until the broker has it."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._process = process
        self._queues: dict[Place, list[tuple[Batch, asyncio.Future[Any]]]] = {}
        self._broken: Refused | None = None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def create_batch(self) -> Batch:
        return Batch(self._cluster.rng.choice((1, 2, 3, 5, 1000)))

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        if self._cluster.rng.random() < 0.02:
            await asyncio.sleep(REFUSES_AFTER_S)
            raise KafkaTimeoutError
        done: asyncio.Future[Any] = self._cluster.loop.create_future()
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        queue = self._queues.setdefault((topic, partition), [])
        queue.append((batch, done))
        if len(queue) == 1:
            self._send((topic, partition))
        return done

    def _send(self, place: Place) -> None:
        cluster = self._cluster
        cluster.in_flight += 1
        cluster.loop.call_later(cluster.delay_s(), self._arrive, place, context=cluster.context)

    def _arrive(self, place: Place) -> None:
        """At the broker: what a killed process has sent arrives all the same, at times."""
        cluster = self._cluster
        cluster.in_flight -= 1
        if self._process.dead and cluster.rng.random() < 0.5:
            return
        batch, _ = self._queues[place][0]
        taken, answer = True, Ack(-1, -1, LOG_APPEND_TIME)
        if self._broken is None and cluster.refusals:
            taken, self._broken = cluster.refusals.pop(), Refused("refused")
        elif self._broken is not None:
            taken = False
        if taken:
            if cluster.owners.get(place[1]) is not self._process:
                cluster.intruded.setdefault(place, len(cluster.log(*place)))
            offsets = [cluster.append(*place, key, value, headers) for key, value, headers in batch.records]
            if cluster.rng.random() > 0.05:  # else the answer got lost, and the batch was sent again
                answer = Ack(offsets[0], cluster.now_ms(), LOG_APPEND_TIME)
        cluster.loop.call_later(
            cluster.delay_s(), self._answered, place, self._broken or answer, context=self._process.context
        )

    def _answered(self, place: Place, answer: Ack | Refused) -> None:
        queue = self._queues[place]
        _, done = queue.pop(0)
        if not done.done():
            if isinstance(answer, Refused):
                done.set_exception(answer)
            else:
                done.set_result(answer)
        if queue:
            self._send(place)


class SimPublisher(Publisher):
    """The worker's publisher, with other producers below it."""

    def __init__(self, cluster: Cluster, process: Process, settings: Any, changelogs: Any, partitions: Any) -> None:
        self._cluster = cluster
        self._process = process
        super().__init__(settings, changelogs, partitions)

    def _producer(self, _role: str) -> Any:
        return Producer(self._cluster, self._process)


class Member:
    """A group member, as the coordinator and as the worker itself see it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.generation = -1
        self.partitions: set[int] = set()
        self.must_join = asyncio.Event()
        self.joined: asyncio.Future[Any] | None = None
        self.heard_s = 0.0


def _alone_in_hand(metadata: str) -> int:
    mark = read_mark(metadata)
    return mark.hand if mark.size == 1 else -1


class Group:
    """The coordinator: at each rebalance all members give up all partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self.members: list[Member] = []
        self.generation = 0
        self.stable = True
        self._owners: dict[int, Member] = {}
        self._reap()

    def _reap(self) -> None:
        for member in list(self.members):
            away = self._loop.now_s < self._cluster.down_until_s + SESSION_S
            if member.joined is None and self._loop.now_s - member.heard_s > SESSION_S and not away:
                self._cluster.zombies += not member.process.dead
                self.leave(member)
        self._loop.call_later(1.0, self._reap, context=self._cluster.context)

    def beat(self, member: Member) -> None:
        """A heartbeat, now and then; its answer takes its time."""
        cluster, loop = self._cluster, self._loop
        loop.call_later(cluster.delay_s(), self._hear, member, member.generation, context=cluster.context)
        loop.call_later(HEARTBEAT_S, self.beat, member, context=member.process.context)

    def _hear(self, member: Member, generation: int) -> None:
        member.heard_s = self._loop.now_s
        known = member in self.members and generation == self.generation
        if generation < 0 or member.joined is not None or (known and self.stable):
            return
        answer = member.must_join.set if known else lambda: self._let_know(member, generation)
        self._loop.call_later(self._cluster.delay_s(), answer, context=member.process.context)

    def _let_know(self, member: Member, generation: int) -> None:
        """Tell the member that the group continues without it."""
        if member.generation == generation:
            member.generation = -1
            member.must_join.set()

    async def join(self, member: Member) -> tuple[int, set[int]]:
        """Wait for all members; return the new generation and this member's partitions in it."""
        await self._cluster.pause()
        if member not in self.members:
            self.members.append(member)
        member.heard_s = self._loop.now_s
        joined = member.joined = self._loop.create_future()
        self.rebalance()
        self._complete_if_all()
        member.generation, member.partitions = await joined
        return member.generation, member.partitions

    def leave(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            self.rebalance()
            self._complete_if_all()

    def rebalance(self) -> None:
        """Ask all members to join again."""
        if self.stable:
            self.stable = False
            self._loop.call_later(REBALANCE_S, self._complete, self.generation, context=self._cluster.context)

    def _complete_if_all(self) -> None:
        if self.members and all(member.joined is not None for member in self.members):
            self._complete(self.generation)

    def _complete(self, generation: int) -> None:
        if generation != self.generation or self.stable:
            return
        self._cluster.zombies += sum(member.joined is None and not member.process.dead for member in self.members)
        self.members = [member for member in self.members if member.joined is not None]
        self.generation += 1
        self.stable = True
        shares = self._shares()
        for member in self.members:
            joined, member.joined, member.heard_s = member.joined, None, self._loop.now_s
            if joined is not None and not joined.done():
                joined.set_result((self.generation, shares[id(member)]))

    def _shares(self) -> dict[int, set[int]]:
        shares: dict[int, set[int]] = {id(member): set() for member in self.members}
        rng = self._cluster.rng
        for partition in range(self._cluster.partitions if self.members else 0):
            owner = self._owners.get(partition)
            if owner not in self.members or rng.random() < 0.4:
                owner = rng.choice(self.members)
            self._owners[partition] = owner
            self._cluster.owners[partition] = owner.process
            shares[id(owner)].add(partition)
        return shares

    def commit(self, member: Member, generation: int, offsets: Mapping[Any, tuple[int, str]]) -> bool:
        """Commit; return False for a member of another generation."""
        if member not in self.members or generation != self.generation:
            self._let_know(member, generation)
            return False
        for tp, (offset, metadata) in offsets.items():
            self._cluster.commit((tp.topic, tp.partition), offset, metadata)
            self._cluster.named[(tp.topic, tp.partition), id(member), generation] = _alone_in_hand(metadata)
        return True
