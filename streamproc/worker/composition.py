"""The composition root: the parts of a worker, how they are connected, and how they stop."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from faust.types import TP

from streamproc import __version__
from streamproc.errors import StatesOfAnotherVersion
from streamproc.kafka import topics
from streamproc.kafka.log_limit import flush_limits
from streamproc.kafka.partitioning import home_of
from streamproc.worker.accounts_table import AccountsTable
from streamproc.worker.activity import Activity
from streamproc.worker.agents import add_command_agent, add_slice_agents
from streamproc.worker.consumer import BatchTransport
from streamproc.worker.counts import WorkerCounts
from streamproc.worker.deadlines import Deadlines
from streamproc.worker.faust_app import new_app
from streamproc.worker.fleet_commands import FleetCommands
from streamproc.worker.heartbeats import Heartbeats
from streamproc.worker.limits import (
    ACCOUNT_LINGER_S,
    CANCEL_AGAIN_S,
    DRAIN_TIMEOUT_S,
    END_TIMEOUT_S,
    LEAVE_TIMEOUT_S,
    LOG_DELAY_S,
    REPORT_INTERVAL_S,
    STUBS_A_RUN,
)
from streamproc.worker.partition_lag import PartitionLag
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.provider_clock import ProviderClock
from streamproc.worker.publishing import Publisher
from streamproc.worker.rocksdb_runs import keep_runs_in_rocksdb
from streamproc.worker.runs_table import RunsTable
from streamproc.worker.slices import Slice
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.stall_detector import StallDetector, WorkerStalled
from streamproc.worker.status_file import status_file_of
from streamproc.worker.status_retention import StatusRetention
from streamproc.worker.tasks import dump_tasks, unless_stopped
from streamproc.worker.turn_processor import TurnProcessor
from streamproc.worker.turn_tracing import TracedPipelines, TracedPublisher, TurnTracing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.core.engine import Engine
    from streamproc.policy import Policy
    from streamproc.settings import Settings
    from streamproc.worker.readiness import Ready
    from streamproc.worker.watchdog import Watchdog

log = logging.getLogger("streamproc.worker")


class Worker:
    """The parts of a worker, connected."""

    path: ClassVar[str] = "batch"
    """How records reach the agents, for the log."""
    transport: ClassVar[type[BatchTransport]] = BatchTransport

    def __init__(self, settings: Settings, policy: Policy, ready: Ready, tracing: TurnTracing | None = None) -> None:
        engine = policy.engine()
        self.faults = engine.faults
        self.detectors = tuple(policy.effective()["detectors"])  # the codes of all, off or on
        self._turns, self._spend = settings.topic("turns"), settings.topic("spend")
        self._commands = settings.topic("commands")
        self._count = ready.partitions[self._turns]
        self._home = home_of(settings, self._count)
        self._changelogs = {"runs": topics.changelog_topic(settings), "accounts": topics.accounts_topic(settings)}
        self._uses_append_time = ready.live
        self._is_shadow = bool(settings.shadow)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.counts = WorkerCounts(live=ready.live)
        self._tracing = tracing
        publisher = Publisher if tracing is None else partial(TracedPublisher, tracing)
        self.publisher = publisher(settings, self._changelogs, ready.partitions, self.counts)
        self._add_processors(settings, policy, engine, ready)
        self.app = new_app(settings, self._count)
        self._add_tables(settings, engine)
        self._add_transport()
        self._add_agents()
        self.app.tables.add(self._runs_table)
        self.app.tables.add(self._accounts_table)
        self.deadlines = Deadlines(
            self.app, self._turns, engine, self.store, self.pipelines, self.publisher, self._home
        )
        self.lag = PartitionLag(
            self.app, self._turns, self.pipelines, self.publisher.log_now_ms, live=self._uses_append_time
        )
        self.heartbeats = Heartbeats(settings, policy, __version__, self._count, self.lag, self.counts)
        self.provider_clock = ProviderClock(
            self.app, policy.providers, self.account_store, self.account_pipelines, self.publisher.log_now_ms
        )
        self.heartbeats.providers = self.provider_clock.states
        self.activity = Activity(self.app, settings, self.store, engine, self.publisher.log_now_ms)
        self.status_retention = StatusRetention(
            self.app, settings, self.store, self.pipelines, self.processor, self.publisher
        )
        self._forgets = bool(settings.status_finished_hours or settings.status_days)
        if self._forgets and ready.partitions[settings.topic("runs")] != self._count:
            self._forgets = False
            log.warning("%s has not as many partitions as %s: old statuses stay", settings.topic("runs"), self._turns)
        self.deadlines.paused = lambda: self.fleet_commands.fleet.status != "CLEAR"
        self.stall_detector = StallDetector(
            self.app,
            self._pipelines,
            settings,
            [
                self._turns,
                *(settings.topic(role) for role in ("control", "runs", "spend")),
                *self._changelogs.values(),
            ],
        )

    # The parts, in the order in which they are needed.

    def _add_processors(self, settings: Settings, policy: Policy, engine: Engine, ready: Ready) -> None:
        limits: dict[str, Any] = {
            "version": __version__, "dead_letter_bytes": ready.dead_letter_bytes, "counts": self.counts
        }  # fmt: skip
        self.accounts = AccountProcessor(self._spend, policy=policy, **limits)
        self.fleet_commands = FleetCommands(settings, self.publisher, self._home, **limits)
        self.status_file = (
            status_file_of(settings, self.fleet_commands, self.publisher)
            if settings.status_file and not settings.shadow
            else None
        )
        self.processor = TurnProcessor(
            engine,
            self._turns,
            event_bytes_max=settings.event_bytes_max,
            new_runs_max=settings.new_runs_max,
            home=self._home,
            fleet_commands=self.fleet_commands,
            calls=policy.providers.enabled,
            **limits,
        )
        # A log line takes 0.1 ms. It is written when the decision is on its way.
        self.processor.soon = partial(asyncio.get_running_loop().call_later, LOG_DELAY_S)

    def _add_tables(self, settings: Settings, engine: Engine) -> None:
        """Make the tables `runs` and `accounts`, and the pipelines that write them."""
        options: dict[str, Any] = {"partitions": self._count, "key_type": bytes, "value_type": bytes}
        self._runs_table = RunsTable(self.app, name="runs", **options)
        self._accounts_table = AccountsTable(self.app, name="accounts", **options)
        self._runs_table.on_recover(self._recovered)
        self.store, self.account_store = self._runs_table.store, self._accounts_table.store
        self.rocksdb_stores = keep_runs_in_rocksdb(self.store, settings) if settings.store == "rocksdb" else None
        pipelines = PartitionPipelines if self._tracing is None else partial(TracedPipelines, self._tracing)
        self.pipelines = pipelines("runs", self.store, self.processor, self.publisher, self._failed)
        self.account_pipelines = PartitionPipelines(
            "accounts", self.account_store, self.accounts, self.publisher, self._failed, ACCOUNT_LINGER_S
        )
        self._pipelines = {self._turns: self.pipelines, self._spend: self.account_pipelines}
        self.store.failed = self._failed
        self.store.run_limits.states = engine.states
        self.store.retained, self.account_store.retained = self._retain, self.account_pipelines.retain
        self.fleet_commands.runs_of = self.store.partition_of
        if self._uses_append_time:
            self.store.run_limits.due_ms = lambda state: due.due_ms if (due := engine.next_deadline(state)) else 0

    def _add_transport(self) -> None:
        """Let Faust use our consumer. Its channels are added with the agents."""
        self._channels: dict[str, Any] = {}
        self.app.transport = self.transport(
            self.app.conf.broker_consumer,
            self.app,
            pipelines=self._pipelines,
            stores={self._changelogs["runs"]: self.store, self._changelogs["accounts"]: self.account_store},
            channels=self._channels,
        )

    def _add_agents(self) -> None:
        options: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "allow_empty": True}
        self._add_event_agents(self.app.topic(self._turns, **options), self.app.topic(self._spend, **options))
        self._command_batches: Any = add_command_agent(self.app, self.fleet_commands)
        self.fleet_commands.deliver = self._deliver_commands

    def _add_event_agents(self, turns: Any, spend: Any) -> None:
        """Add the agents of the topics of turns and spend."""
        slices = add_slice_agents(self.app, self.pipelines, self.account_pipelines)
        self._channels |= {self._turns: slices.turns, self._spend: slices.spend}
        for topic in (turns, spend):
            self.app.topics.add(topic)  # the consumer subscribes to these, the agents do not

    async def _deliver_commands(self, records: Sequence[Any]) -> None:
        await self.app.agents.wait_until_agents_started()
        while records:
            batch = Slice(TP(self._commands, records[0].partition), records, lambda: True)
            await self._command_batches.put(batch)
            records = records[await batch.answer :]

    # Running.

    async def run(self, stop: asyncio.Event, watchdog: Watchdog) -> None:
        """Work until a stop is requested. Raise what makes the worker crash."""
        try:
            await unless_stopped(stop, self.publisher.start())
        except BaseException:
            await self.publisher.stop()
            raise
        log.info("agents=%s tables=%s", ",".join(self.app.agents), ",".join(self.app.tables))
        starting = asyncio.ensure_future(self.app.start())
        watching: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(stop.wait()),
            asyncio.ensure_future(self._crashed()),
            asyncio.ensure_future(self._report()),
            asyncio.ensure_future(self.fleet_commands.run()),
            asyncio.ensure_future(self.stall_detector.run()),
            asyncio.ensure_future(self.lag.run()),
            asyncio.ensure_future(self.heartbeats.run()),
            asyncio.ensure_future(self.activity.run()),
        ]
        if self.status_file is not None:
            watching.append(
                asyncio.ensure_future(self.status_file.run(self.fleet_commands.caught_up, self.fleet_commands.changed))
            )
        if self._uses_append_time and not self._is_shadow:
            watching.append(asyncio.ensure_future(self.deadlines.run()))
        if self._uses_append_time:  # an imported log has no current time
            watching.append(asyncio.ensure_future(self.provider_clock.run()))
        if self._forgets:
            watching.append(asyncio.ensure_future(self.status_retention.run()))
        patience_s = 2 * DRAIN_TIMEOUT_S
        try:
            starting.add_done_callback(self._started)
            done, _ = await asyncio.wait({*watching, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {watching[0]}:
                task.result()  # none of these tasks returns by itself: it failed
        except WorkerStalled:
            patience_s = LEAVE_TIMEOUT_S  # a part that hangs does not finish
            raise
        finally:
            watchdog.end_within(END_TIMEOUT_S)
            await self._end([starting, *watching], patience_s, clean=watching[0].done())
        if self._failure.done():
            self._failure.result()

    def _started(self, starting: asyncio.Future[None]) -> None:
        problem = None if starting.cancelled() else starting.exception()
        if problem is not None:
            self._failed(problem)

    async def _recovered(self) -> None:
        """The tables are restored: drop what belongs to a turns topic that was deleted and created again."""
        consumer = self.app.consumer
        mine = {tp.partition for tp in consumer.assignment() if tp.topic == self._turns}
        if not mine:
            return
        found = await consumer.highwaters(*(TP(self._turns, number) for number in range(self._count)))
        ends = {tp.partition: end for tp, end in found.items()}
        self.store.forget_another_log({partition: ends[partition] for partition in mine})
        try:
            self.store.require_readable()
        except StatesOfAnotherVersion as problem:  # Faust would only log it
            self._failed(problem)
            raise
        self.account_store.forget_another_log(ends)
        self.pipelines.repair(mine)
        self.account_pipelines.repair(mine)
        self.fleet_commands.have(mine)
        self.status_retention.have(mine)

    def _retain(self, partitions: set[int]) -> None:
        self.pipelines.retain(partitions)
        self.fleet_commands.keep(partitions)
        self.status_retention.leave()

    def _failed(self, problem: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(problem)

    async def _crashed(self) -> None:
        """Wait until Faust reports that a part of it has crashed."""
        self._failed(await self.app.wait_for_crash())

    async def _report(self) -> None:
        """Log a line of counts at intervals, whenever they have changed. Never returns."""
        logged, evicted, forgotten = "", 0, 0
        run_limits = self.store.run_limits
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            flush_limits()
            counts = f"{self.processor.counts} runs={run_limits.runs} deadlines={self.deadlines.appended}"
            if run_limits.evicted > evicted:
                log.warning(
                    "run limit of %d reached; evicted %d idle runs. Add workers, or check for generated run ids.",
                    run_limits.runs_max, run_limits.evicted,
                )  # fmt: skip
                evicted = run_limits.evicted
            if run_limits.forgotten_halts > forgotten:
                log.error(
                    "limit of %d halted runs reached; forgot %d of them, which are running again at their next turn. "
                    "Check for generated run ids.",
                    STUBS_A_RUN * run_limits.runs_max, run_limits.forgotten_halts,
                )  # fmt: skip
                forgotten = run_limits.forgotten_halts
            if evicted:
                counts += f" evicted={evicted}"
            counts += f" {self.accounts}"
            if self.faults:
                counts += f" faults={sum(self.faults.values())}"
            if counts != logged:
                log.info("working %s", counts)
                logged = counts

    async def _end(self, tasks: list[asyncio.Future[Any]], patience_s: float, *, clean: bool) -> None:
        """Finish what is in hand, commit, and leave the group, without waiting for an absent broker for ever."""
        stopping = asyncio.ensure_future(self.app.stop())
        done, _ = await asyncio.wait({stopping}, timeout=patience_s)
        if done:
            stopping.result()
        else:
            log.warning("the broker did not acknowledge everything in time; uncommitted records are processed again")
            dump_tasks()
            stopping.cancel()
            await asyncio.wait({stopping}, timeout=CANCEL_AGAIN_S)
        await self.heartbeats.stop(clean=clean and bool(done))
        for task in tasks:
            task.cancel()
        _, hanging = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
        if hanging:
            log.warning("parts of the worker do not end; leaving them")
            dump_tasks()
        flush_limits()
        self.pipelines.retain(set())
        self.account_pipelines.retain(set())
        self.store.close()
        if self.rocksdb_stores is not None:
            self.rocksdb_stores.close()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.publisher.stop()
        except TimeoutError:
            log.warning("the broker does not answer; disconnecting")
