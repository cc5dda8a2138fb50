"""The worker's composition root: what it is made of, how it starts, how it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from faust.types import TP

from streamproc.core.compiled import core_kind
from streamproc.errors import InvalidSettings, Unavailable
from streamproc.kafka import topics
from streamproc.worker import logs
from streamproc.worker.agents import add_command_agent, add_slice_agents
from streamproc.worker.consumer import BatchTransport
from streamproc.worker.deadlines import Deadlines
from streamproc.worker.faust_app import new_app
from streamproc.worker.fleet_commands import CommandBatch, FleetCommands
from streamproc.worker.limits import (
    CANCEL_AGAIN_S,
    DRAIN_TIMEOUT_S,
    END_TIMEOUT_S,
    GC_THRESHOLD,
    LEAVE_TIMEOUT_S,
    LIVES_MAX,
    LIVES_WINDOW_S,
    LOOP_STUCK_SESSIONS,
    REPORT_INTERVAL_S,
    RETRY_FIRST_S,
    RUNS_MAX,
)
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.publishing import Publisher
from streamproc.worker.readiness import Ready, wait_until_ready
from streamproc.worker.rocksdb_runs import keep_on_disk
from streamproc.worker.spend import AccountProcessor, AccountsTable
from streamproc.worker.stall_detector import StallDetector, WorkerStalled
from streamproc.worker.status_file import status_file_of
from streamproc.worker.stock import StockTransport, add_event_agents
from streamproc.worker.tables import RunsTable
from streamproc.worker.tasks import cancel_all, dump_tasks
from streamproc.worker.turn_processor import TurnProcessor
from streamproc.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.settings import Settings

log = logging.getLogger("streamproc.worker")

Path = Literal["batch", "stock"]
EXIT_OK: Final = 0
EXIT_CRASHED: Final = 1
EXIT_UNUSABLE: Final = 2

T = TypeVar("T")


class Stopped(Exception):
    """Somebody asked the worker to end."""


def run_worker(
    settings: Settings,
    policy: Policy,
    path: Path = "batch",
    *,
    give_up_after_s: float | None = None,
    log_level: str = "info",
) -> int:
    """Watch the turns topic until SIGTERM or SIGINT; the exit code.

    0: asked to stop, and everything in hand was finished. 1: the broker was away for longer than `give_up_after_s`
    (None: it waits for ever), or the worker crashed again and again, stood still, or could not end in time.
    2: settings that cannot be used.
    """
    logs.set_up(log_level)
    with Watchdog(LOOP_STUCK_SESSIONS * settings.session_timeout_s) as watchdog:
        return run_with_restarts(lambda: run_once(settings, policy, path, give_up_after_s, watchdog), watchdog)


def run_with_restarts(live: Callable[[], Coroutine[Any, Any, None]], watchdog: Watchdog) -> int:
    """One life after the other, until one does not end by a crash, or too many do; the exit code."""
    crashes: list[float] = []
    while True:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                watchdog.watch(runner.get_loop())
                runner.run(live())
        except Stopped:
            return EXIT_OK
        except WorkerStalled as problem:
            log.critical("%s; the broker is there, so this process is not fit to go on", problem)
            return EXIT_CRASHED
        except InvalidSettings as problem:
            log.critical("%s", problem)
            return EXIT_UNUSABLE
        except Unavailable as problem:
            log.critical("gave up: %s", problem)
            return EXIT_CRASHED
        except Exception as problem:
            now = time.monotonic()
            crashes = [moment for moment in crashes if now - moment < LIVES_WINDOW_S] + [now]
            if len(crashes) >= LIVES_MAX:
                log.exception("crashed %d times within %g s; leaving it to the supervisor", LIVES_MAX, LIVES_WINDOW_S)
                return EXIT_CRASHED
            log.error("crashed, starting anew from what is committed: %r", problem, exc_info=problem)
            time.sleep(RETRY_FIRST_S * 2 ** len(crashes))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def run_once(
    settings: Settings, policy: Policy, path: Path, give_up_after_s: float | None, watchdog: Watchdog
) -> None:
    """One life of the worker, from waiting for the broker to the clean end (`Stopped`) or a crash."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    log.info(
        "starts brokers=%s group=%s instance=%s policy=%s version=%s hash=%s path=%s core=%s",
        settings.brokers, settings.worker_group, settings.instance or "-",
        policy.name, policy.version, policy.hash, path, core_kind(),
    )  # fmt: skip
    gc.set_threshold(*GC_THRESHOLD)
    ready = await _unless(stop, wait_until_ready(settings, give_up_after_s))
    worker = Worker(settings, policy, path, ready)
    try:
        await worker.run(stop, watchdog)
    finally:
        log.info("stopped %s", worker.processor.counts)
        await cancel_all()
    raise Stopped


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work; `Stopped` as soon as somebody asks for the end."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            raise Stopped
        return task.result()
    finally:
        for pending in (task, stopping):
            pending.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


class Worker:
    """The parts of a worker, put together."""

    def __init__(self, settings: Settings, policy: Policy, path: Path, ready: Ready) -> None:
        partitions = ready.partitions
        engine = policy.engine()
        self.faults = engine.faults
        self.accounts = AccountProcessor(
            settings.topic("spend"), version=_version(), dead_letter_bytes=ready.dead_letter_bytes
        )
        changelogs = {"runs": topics.changelog_topic(settings), "accounts": topics.accounts_topic(settings)}
        self.publisher = Publisher(settings, changelogs, partitions)
        name = settings.topic("turns")
        count = partitions[name]
        self.orders = FleetCommands(
            settings, self.publisher, count, dead_letter_bytes=ready.dead_letter_bytes, version=_version()
        )
        self.status_file = status_file_of(settings, self.orders, self.publisher) if settings.status_file else None
        self.processor = TurnProcessor(
            engine,
            name,
            event_bytes_max=settings.event_bytes_max,
            dead_letter_bytes=ready.dead_letter_bytes,
            version=_version(),
            orders=self.orders,
        )
        self.app = new_app(settings, count)
        table = RunsTable(self.app, name="runs", partitions=count, key_type=bytes, value_type=bytes)
        accounts = AccountsTable(self.app, name="accounts", partitions=count, key_type=bytes, value_type=bytes)
        self.store, self.account_store = table.store, accounts.store
        self.shelves = keep_on_disk(self.store, settings) if settings.store == "rocksdb" else None
        self.lanes = PartitionPipelines("runs", self.store, self.processor, self.publisher, self._failed)
        self.account_lanes = PartitionPipelines(
            "accounts", self.account_store, self.accounts, self.publisher, self._failed
        )
        self.store.failed = self._failed
        self.store.retained, self.account_store.retained = self._retain, self.account_lanes.retain
        self.orders.runs = self.store.runs
        self.deadlines = Deadlines(self.app, name, engine, self.store, self.lanes, self.publisher)
        self.deadlines.paused = lambda: self.orders.fleet.status != "CLEAR"
        self._live = ready.live
        if ready.live:
            self.store.census.due_ms = lambda state: due.due_ms if (due := engine.next_deadline(state)) else 0
        brokers = self.app.conf.broker_consumer
        stock = path == "stock"
        spend = settings.topic("spend")
        channels: dict[str, Any] = {}
        transport = StockTransport if stock else BatchTransport
        self.app.transport = transport(
            brokers,
            self.app,
            pipelines={name: self.lanes, spend: self.account_lanes},
            stores={changelogs["runs"]: self.store, changelogs["accounts"]: self.account_store},
            channels=channels,
        )
        event_topics = (self._topic(name), self._topic(spend))
        if stock:
            add_event_agents(self.app, event_topics, self.lanes, self.account_lanes)
        else:
            slices = add_slice_agents(self.app, self.lanes, self.account_lanes)
            channels |= {name: slices.turns, spend: slices.spend}
            for topic in event_topics:
                self.app.topics.add(topic)  # subscribed to by the consumer, not by the agents
        self._command_batches: Any = add_command_agent(self.app, self.orders)
        self.orders.deliver = self._deliver_commands
        self.app.tables.add(table)
        self.app.tables.add(accounts)
        self.progress = StallDetector(
            self.app,
            {name: self.lanes, settings.topic("spend"): self.account_lanes},
            settings,
            [name, *(settings.topic(role) for role in ("control", "runs", "spend")), *changelogs.values()],
        )
        self._turns, self._count = name, count
        table.on_recover(self._recovered)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, stop: asyncio.Event, watchdog: Watchdog) -> None:
        """Work until somebody asks for the end. Raises what made it crash."""
        try:
            await _unless(stop, self.publisher.start())
        except BaseException:
            await self.publisher.stop()
            raise
        log.info("agents=%s tables=%s", ",".join(self.app.agents), ",".join(self.app.tables))
        starting = asyncio.ensure_future(self.app.start())
        watching: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(stop.wait()),
            asyncio.ensure_future(self._crashed()),
            asyncio.ensure_future(self._report()),
            asyncio.ensure_future(self.orders.run()),
            asyncio.ensure_future(self.progress.run()),
        ]
        if self.status_file is not None:
            watching.append(asyncio.ensure_future(self.status_file.run(self.orders.caught_up, self.orders.changed)))
        if self._live:
            watching.append(asyncio.ensure_future(self.deadlines.run()))
        patience_s = 2 * DRAIN_TIMEOUT_S
        try:
            starting.add_done_callback(self._started)
            done, _ = await asyncio.wait({*watching, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {watching[0]}:
                task.result()  # none of them ends by itself: it failed
        except WorkerStalled:
            patience_s = LEAVE_TIMEOUT_S  # what hangs does not finish
            raise
        finally:
            watchdog.end_within(END_TIMEOUT_S)
            await self._end([starting, *watching], patience_s)
        if self._failure.done():
            self._failure.result()

    def _topic(self, name: str) -> Any:
        return self.app.topic(name, key_type=bytes, value_type=bytes, allow_empty=True)

    async def _deliver_commands(self, records: Sequence[Any]) -> None:
        batch = CommandBatch(records)
        await self.app.agents.wait_until_agents_started()
        await self._command_batches.put(batch)
        await batch.answer

    def _started(self, starting: asyncio.Future[None]) -> None:
        problem = None if starting.cancelled() else starting.exception()
        if problem is not None:
            self._failed(problem)

    async def _recovered(self) -> None:
        consumer = self.app.consumer
        mine = {tp.partition for tp in consumer.assignment() if tp.topic == self._turns}
        if not mine:
            return
        found = await consumer.highwaters(*(TP(self._turns, number) for number in range(self._count)))
        ends = {tp.partition: end for tp, end in found.items()}
        self.store.forget_another_log({partition: ends[partition] for partition in mine})
        self.account_store.forget_another_log(ends)
        self.orders.have(mine)

    def _retain(self, partitions: set[int]) -> None:
        self.lanes.retain(partitions)
        self.orders.keep(partitions)

    def _failed(self, problem: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(problem)

    async def _crashed(self) -> None:
        """Wait until Faust says that a part of it has crashed."""
        await self.app._crashed.wait()
        self._failed(self.app.crash_reason or RuntimeError("a part of the worker crashed"))

    async def _report(self) -> None:
        """For ever: a line of counts now and then, where there was something to count."""
        told, evicted = "", 0
        census = self.store.census
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            counts = f"{self.processor.counts} runs={census.runs} deadlines={self.deadlines.appended}"
            if census.evicted > evicted:
                log.warning(
                    "no room for more than %d runs: %d that were idle longest are forgotten, and begin anew should they"
                    " be heard of again; start more workers, or look who makes up run ids", RUNS_MAX, census.evicted,
                )  # fmt: skip
                evicted = census.evicted
            if evicted:
                counts += f" evicted={evicted}"
            counts += f" {self.accounts}"
            if self.faults:
                counts += f" faults={sum(self.faults.values())}"
            if counts != told:
                log.info("working %s", counts)
                told = counts

    async def _end(self, tasks: list[asyncio.Future[Any]], patience_s: float) -> None:
        """Finish what is in hand, commit, leave the group. A broker that is away is not waited for without end."""
        stopping = asyncio.ensure_future(self.app.stop())
        done, _ = await asyncio.wait({stopping}, timeout=patience_s)
        if done:
            stopping.result()
        else:
            log.warning("the broker did not take everything in time; what is missing will be done again")
            dump_tasks()
            stopping.cancel()
            await asyncio.wait({stopping}, timeout=CANCEL_AGAIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.lanes.retain(set())
        self.account_lanes.retain(set())
        self.store.close()
        if self.shelves is not None:
            self.shelves.close()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.publisher.stop()
        except TimeoutError:
            log.warning("the broker does not answer; leaving it")


def _version() -> str:
    try:
        return version("streamproc")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
