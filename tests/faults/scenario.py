"""A deployment for one fault: separate topics, workers in processes, a steady flow of turns, and a final check."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamproc.errors import Unavailable
from streamproc.kafka import topics as kafka_topics
from streamproc.policy import load_policy
from tests.faults.verdict import Log, Scanned, check_results, is_aside
from tests.faults.workload import Sent, Workload
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, Way, WorkerProcess, places_of

T = TypeVar("T")
Record = tuple[bytes | None, bytes | None, int | None]
"""Key, value, and the time of the publisher's clock (None: now)."""

SESSION_S: Final = 3.0  # the shortest that the settings allow: each kill may cost one session
BROKER_ERRORS: Final = (KafkaError, OSError, TimeoutError)  # a broker that is busy or was killed
PATIENCE_S: Final = 180.0  # generous, for a busy machine
POLL_S: Final = 0.25  # between two polls of the workers' progress
SEND_MAX: Final = 60
SEND_PAUSE_S: Final = 0.02


@dataclass
class Result:
    """The result of one round of one fault."""

    fault: str
    path: str
    seed: int
    times: int = 0
    turns: int = 0
    controls: int = 0
    lost: int = 0
    made_up: int = 0
    duplicates: int = 0
    stall_s: float = 0.0
    halt_s: float = 0.0  # the slowest halt of those that the fault measures, from its turn to a listener
    took_s: float = 0.0
    heard: dict[str, tuple[float, str]] = field(default_factory=dict)  # seconds until a surface said it, and its words

    def hear(self, heard: dict[str, tuple[float, str]]) -> None:
        """Keep the slowest of each surface."""
        self.heard = {name: max(one, self.heard.get(name, one)) for name, one in heard.items()}


class Scenario:
    """One fault in one deployment. `size` picks between the short mode and the long one."""

    def __init__(self, result: Result, *, long: bool, brokers: str, directory: Path, **options: object) -> None:
        self.result = result
        self.path: Way = result.path  # type: ignore[assignment]
        self.rng = random.Random(f"{result.fault}/{result.seed}")
        self._pulse = random.Random(result.seed)
        self.long = long
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.load = Workload(result.seed)
        self.cleaned = 0  # records that compaction removed from the changelog
        self.workers: list[WorkerProcess] = []
        self.started = 0
        self.before = ""  # Python code that each worker runs first
        self.aside = b""  # keys of records that the fault checks itself begin with this; the scan leaves them out
        self.policy: Any = None  # for the scan; None: the policy of the workers
        self.prefix = re.sub(r"[^a-z0-9]+", "-", f"faults-{result.fault}-{result.path}-{uuid.uuid4().hex[:8]}")
        self.use(brokers, **options)

    def use(self, brokers: str, **options: object) -> None:
        """Use a deployment on this broker."""
        self.settings = settings_for(brokers, self.prefix, **{"session_timeout_s": SESSION_S, **options})
        self.topics = Topics(self.settings)

    def size(self, short: T, long: T) -> T:
        """Return the amount for the current mode: `make test` is short, `make faults` is long."""
        return long if self.long else short

    # Workers.

    def start(self, name: str = "", **options: object) -> WorkerProcess:
        """Start another worker without waiting for it. With a `name`, it is a static member of its group."""
        settings = self.settings.model_copy(update={"instance": name, **options})
        log = self.directory / f"worker-{self.started}.log"
        worker = WorkerProcess(settings, log, self.path, self.before)
        self.started += 1
        self.workers.append(worker)
        return worker.start()

    async def started_worker(self, name: str = "", **options: object) -> WorkerProcess:
        """Start another worker and wait until it has its partitions."""
        worker = self.start(name, **options)
        await ready(worker)
        return worker

    async def kill(self, worker: WorkerProcess, signum: signal.Signals = signal.SIGKILL) -> None:
        """End a worker with a signal."""
        code = await asyncio.to_thread(worker.end, signum)
        assert signum == signal.SIGKILL or code == 0, f"the worker exited with {code}:\n{worker.text[-2000:]}"
        self.workers.remove(worker)

    async def exits_with_an_error(self, worker: WorkerProcess) -> None:
        """Check that a worker gives up and exits with 1."""
        assert await asyncio.to_thread(worker.end) == 1, worker.text[-2000:]
        self.workers.remove(worker)

    def close(self) -> None:
        """Kill the remaining workers."""
        for worker in self.workers:
            worker.end(signal.SIGKILL)

    # Turns.

    async def send(self, count: int, change: Callable[[Sequence[Sent]], Sequence[Sent]] = lambda batch: batch) -> None:
        """Publish the next events in small batches. `change` may repeat events or reorder them."""
        async with self.producer() as send:
            while count > 0:
                batch = self.load.take(min(count, self._pulse.randrange(1, SEND_MAX)))
                count -= len(batch)
                await send([(one.key, one.value, one.raw.get("at")) for one in change(batch)])
                await asyncio.sleep(self._pulse.uniform(0, SEND_PAUSE_S))  # turns never arrive all at once

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Callable[[Sequence[Record]], Awaitable[None]]]:
        """Give a function that sends records in order and returns when the broker has them."""
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

    async def random_moment(self, expected: int) -> None:
        """Wait for a random moment of the work: until some of the `expected` decisions are published, or for some
        seconds."""
        wanted = await self._published() + self.rng.randrange(1, max(2, expected))
        patience_s = self.rng.uniform(0.2, 2 * SESSION_S)

        async def reached() -> bool:
            return await self._published() >= wanted

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await until(reached, PATIENCE_S, every_s=0.01)

    async def _published(self) -> int:
        return sum((await self._watch.ends("control")).values())

    # Start and finish.

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Scenario]:
        """Create the topics and watch the workers' progress."""
        await until(self._has_topics, PATIENCE_S, "a busy broker to create topics")
        self._watch = Watch(self.settings)
        await self._watch.start()
        watching = asyncio.create_task(self._watch.run())
        try:
            yield self
            self.result.stall_s = self._watch.worst_s
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._watch.close()

    async def _has_topics(self) -> bool:
        with contextlib.suppress(Unavailable):
            return (await kafka_topics.apply(self.settings)).ok
        return False

    async def run(self, inject: Callable[[Scenario], Awaitable[None]]) -> None:
        """Open the scenario, inject the fault, and check the results."""
        async with self.open():
            await inject(self)
            await self.finish()

    async def caught_up(self) -> None:
        """Wait until everything is committed."""
        await until(self._all_committed, PATIENCE_S, "everything to be committed", every_s=POLL_S)

    async def finish(self) -> None:
        """Wait until everything is committed, stop the workers, and check the results. Raises `AssertionError`."""
        await self.caught_up()
        for worker in list(self.workers):
            await self.kill(worker, signal.SIGTERM)
        records = await self.topics.read("turns")
        log = Log([one for one in records if not is_aside(one, self.aside)], self.load.by_id)
        policy = self.policy or load_policy(self.settings.policy)
        scanned = await asyncio.to_thread(Scanned, log, self.directory / "log.jsonl", policy)
        assert scanned.decisions
        verdict = await check_results(self.topics, log, scanned, self.aside)
        self.result.turns, self.result.controls = verdict.turns, verdict.controls
        self.result.lost, self.result.made_up = verdict.lost, verdict.made_up
        self.result.duplicates = verdict.duplicates

    async def _all_committed(self) -> bool:
        dead = [worker for worker in self.workers if not worker.running]
        assert not dead, f"a worker exited:\n{dead[0].text[-3000:]}"
        try:
            return await self._watch.behind() == 0
        except BROKER_ERRORS:
            return False


async def ready(worker: WorkerProcess, times: int = 1) -> None:
    """Wait until a worker has received its partitions `times` times."""
    await until(lambda: worker.said("ready partitions=", times), PATIENCE_S, f"a worker to be ready {times} times")


class Watch:
    """Watches the workers' progress and the longest time without a commit while records were waiting."""

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
        """Poll until cancelled."""
        since, before, waiting = time.monotonic(), 0, False
        while True:
            await asyncio.sleep(POLL_S)
            try:
                committed, behind = await self._poll()
            except BROKER_ERRORS:
                continue
            now = time.monotonic()
            if waiting:
                self.worst_s = max(self.worst_s, now - since)
            if committed != before or not behind:
                since, before = now, committed
            waiting = behind > 0

    async def behind(self) -> int:
        """Return the number of uncommitted records on the turns and spend topics."""
        return (await self._poll())[1]

    async def ends(self, name: str) -> dict[int, int]:
        """Return the end offset of each partition of a topic."""
        return {place.partition: end for place, end in (await self._consumer.end_offsets(await self._of(name))).items()}

    async def _poll(self) -> tuple[int, int]:
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
