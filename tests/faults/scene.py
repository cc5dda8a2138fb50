"""What every fault is done to: a deployment of its own, workers in processes, turns that keep coming, and a judge."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamproc.errors import Unavailable
from streamproc.kafka import topics as kafka_topics
from streamproc.policy import load_policy
from tests.faults.verdict import Log, Scanned, judge
from tests.faults.workload import Workload
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, WorkerProcess, places_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from tests.faults.workload import Sent
    from tests.worker.running import Way

T = TypeVar("T")
Record = tuple[bytes | None, bytes | None, int | None]
"""Key, value, and the time by the publisher's clock (None: now)."""

SESSION_S: Final = 3.0  # the least that the settings allow: each kill may cost so much
SILENT: Final = (KafkaError, OSError, TimeoutError)  # a broker that is busy, or that was killed
PATIENCE_S: Final = 180.0  # for a machine that is busy with other things
LOOK_S: Final = 0.25  # between two looks at how far the workers are
SEND_MAX: Final = 60
SEND_PAUSE_S: Final = 0.02


@dataclass
class Figures:
    """What one round of one fault amounted to."""

    fault: str
    path: str
    seed: int
    times: int = 0
    turns: int = 0
    controls: int = 0
    lost: int = 0
    made_up: int = 0
    duplicates: int = 0
    standstill_s: float = 0.0
    took_s: float = 0.0


class Scene:
    """One fault, done to one deployment. `size` tells the short form from the long one."""

    def __init__(self, figures: Figures, *, long: bool, brokers: str, directory: Path, **options: object) -> None:
        self.figures = figures
        self.path: Way = figures.path  # type: ignore[assignment]
        self.dice = random.Random(f"{figures.fault}/{figures.seed}")
        self._pulse = random.Random(figures.seed)
        self.long = long
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.load = Workload(figures.seed)
        self.cleaned = 0  # records that compaction took out of the changelog
        self.workers: list[WorkerProcess] = []
        self.started = 0
        self.before = ""  # what each worker runs first
        self.policy: Any = None  # what the log is scanned under; None: that of the workers
        self.prefix = re.sub(r"[^a-z0-9]+", "-", f"faults-{figures.fault}-{figures.path}-{uuid.uuid4().hex[:8]}")
        self.use(brokers, **options)

    def use(self, brokers: str, **options: object) -> None:
        """Be the deployment on this broker."""
        self.settings = settings_for(brokers, self.prefix, **{"session_timeout_s": SESSION_S, **options})
        self.topics = Topics(self.settings)

    def size(self, short: T, long: T) -> T:
        """How much is done: in each run of all tests, and in `make faults`."""
        return long if self.long else short

    # Workers.

    def start(self, name: str = "", **options: object) -> WorkerProcess:
        """One more worker; does not wait. One with a `name` is a static member of its group."""
        settings = self.settings.model_copy(update={"instance": name, **options})
        log = self.directory / f"worker-{self.started}.log"
        worker = WorkerProcess(settings, log, self.path, self.before)
        self.started += 1
        self.workers.append(worker)
        return worker.start()

    async def started_worker(self, name: str = "", **options: object) -> WorkerProcess:
        """The same, once it has its partitions."""
        worker = self.start(name, **options)
        await ready(worker)
        return worker

    async def kill(self, worker: WorkerProcess, signum: signal.Signals = signal.SIGKILL) -> None:
        """End a worker."""
        code = await asyncio.to_thread(worker.end, signum)
        assert signum == signal.SIGKILL or code == 0, f"it should have ended well:\n{worker.text[-2000:]}"
        self.workers.remove(worker)

    async def ended_by_itself(self, worker: WorkerProcess) -> None:
        """A worker has given up: with 1."""
        assert await asyncio.to_thread(worker.end) == 1, worker.text[-2000:]
        self.workers.remove(worker)

    def close(self) -> None:
        """No worker outlives its scene."""
        for worker in self.workers:
            worker.end(signal.SIGKILL)

    # Turns.

    async def send(self, count: int, way: Callable[[Sequence[Sent]], Sequence[Sent]] = lambda some: some) -> None:
        """Publish the next events, some and then some more; `way` may repeat some, or change their order."""
        async with self.producer() as send:
            while count > 0:
                some = self.load.take(min(count, self._pulse.randrange(1, SEND_MAX)))
                count -= len(some)
                await send([(one.key, one.value, one.raw.get("at")) for one in way(some)])
                await asyncio.sleep(self._pulse.uniform(0, SEND_PAUSE_S))  # turns never come all at once

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Callable[[Sequence[Record]], Awaitable[None]]]:
        """Sends records in order; returns when the broker has them."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.brokers, enable_idempotence=True, max_request_size=12_000_000
        )
        topic = self.settings.topic("turns")

        async def send(records: Sequence[Record]) -> None:
            sent = [await producer.send(topic, value, key=key, timestamp_ms=at) for key, value, at in records]
            for acknowledged in sent:
                await acknowledged

        await producer.start()
        try:
            yield send
        finally:
            await producer.stop()

    async def moment(self, expected: int) -> None:
        """A random moment while turns are worked on: when some more of the `expected` decisions have been told, or
        when none are, after some seconds."""
        wanted = await self._told() + self.dice.randrange(1, max(2, expected))
        patience_s = self.dice.uniform(0.2, 2 * SESSION_S)

        async def come() -> bool:
            return await self._told() >= wanted

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await until(come, PATIENCE_S, every_s=0.01)

    async def _told(self) -> int:
        return sum((await self._watch.ends("control")).values())

    # The beginning and the end.

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Scene]:
        """Topics, and somebody who watches how far the workers are."""
        await until(self._has_topics, PATIENCE_S, "a broker that is busy to make topics")
        self._watch = Watch(self.settings)
        await self._watch.start()
        watching = asyncio.create_task(self._watch.run())
        try:
            yield self
            self.figures.standstill_s = self._watch.worst_s
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._watch.close()

    async def _has_topics(self) -> bool:
        with contextlib.suppress(Unavailable):
            return (await kafka_topics.apply(self.settings)).ok
        return False

    async def play(self, do: Callable[[Scene], Awaitable[None]]) -> None:
        """Do something to an open scene, and judge."""
        async with self.open():
            await do(self)
            await self.finish()

    async def finish(self) -> None:
        """Wait until all is committed, end the workers, and judge. Raises `AssertionError` with what is wrong."""
        await until(self._all_committed, PATIENCE_S, "everything to be committed", every_s=LOOK_S)
        for worker in list(self.workers):
            await self.kill(worker, signal.SIGTERM)
        log = Log(await self.topics.read("turns"), self.load.by_id)
        policy = self.policy or load_policy(self.settings.policy)
        scanned = await asyncio.to_thread(Scanned, log, self.directory / "log.jsonl", policy)
        assert scanned.decisions
        verdict = await judge(self.topics, log, scanned)
        self.figures.turns, self.figures.controls = verdict.turns, verdict.controls
        self.figures.lost, self.figures.made_up = verdict.lost, verdict.made_up
        self.figures.duplicates = verdict.duplicates

    async def _all_committed(self) -> bool:
        dead = [worker for worker in self.workers if not worker.running]
        assert not dead, f"a worker ended by itself:\n{dead[0].text[-3000:]}"
        try:
            return await self._watch.behind() == 0
        except SILENT:
            return False


async def ready(worker: WorkerProcess, times: int = 1) -> None:
    """Wait until a worker has its partitions (again)."""
    await until(lambda: worker.said("ready partitions=", times), PATIENCE_S, f"a worker to be ready {times} times")


class Watch:
    """How far the workers are, and for how long they ever stood still with something to do."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.brokers,
            group_id=settings.worker_group,
            enable_auto_commit=False,
            request_timeout_ms=5_000,
        )
        self._places: dict[str, list[Any]] = {}
        self.worst_s = 0.0

    async def run(self) -> None:
        """For ever: look."""
        since, before, waiting = time.monotonic(), 0, False
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                committed, behind = await self._look()
            except SILENT:
                continue
            now = time.monotonic()
            if waiting:
                self.worst_s = max(self.worst_s, now - since)
            if committed != before or not behind:
                since, before = now, committed
            waiting = behind > 0

    async def behind(self) -> int:
        """Records that are not committed, of turns and of what was spent."""
        return (await self._look())[1]

    async def ends(self, name: str) -> dict[int, int]:
        """Where the partitions of a topic end."""
        return {place.partition: end for place, end in (await self._consumer.end_offsets(await self._of(name))).items()}

    async def _look(self) -> tuple[int, int]:
        consumer = self._consumer
        committed = behind = 0
        for name in ("turns", "spend"):
            places = await self._of(name)
            async with asyncio.timeout(5):
                ends = await consumer.end_offsets(places)
                done = {place: await consumer.committed(place) or 0 for place in places}
            committed += sum(done.values())
            behind += sum(ends.values()) - sum(done.values())
        return committed, behind

    async def _of(self, name: str) -> list[Any]:
        topic = self._settings.topic(name)
        if topic not in self._places:
            self._places[topic] = await places_of(self._consumer, topic)
        return self._places[topic]

    async def start(self) -> None:
        """Connect."""
        await self._consumer.start()

    async def close(self) -> None:
        """Disconnect."""
        await self._consumer.stop()
