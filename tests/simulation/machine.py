"""A simulated worker: the parts of the real one, connected as in `worker.composition`, on a simulated Kafka.

Real: the agents and their slices, pipelines, processors, tables and their stores, the publisher, the deadlines, and the
parts of the consumer that move records, restore and commit. Not real: aiokafka's clients, Faust's services and
channels.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from faust.types import TP

from streamproc.kafka.partitioning import home_of
from streamproc.settings import load_settings
from streamproc.worker.accounts_table import AccountStore
from streamproc.worker.agents import add_slice_agents
from streamproc.worker.composition import Worker
from streamproc.worker.consumer import BatchConsumer
from streamproc.worker.deadlines import Deadlines
from streamproc.worker.limits import ACCOUNT_LINGER_S, COMMIT_INTERVAL_S
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.partition_store import PartitionStore
from streamproc.worker.provider_clock import ProviderClock
from streamproc.worker.runs_table import RunStore
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.turn_processor import TurnProcessor
from streamproc.worker.vendor import POLL_S
from tests.feeding import Feed, WrappedEngine
from tests.simulation.cluster import Cluster, Group, Member, Record, SimPublisher
from tests.simulation.loop import Process

SETTINGS: Final = load_settings(brokers="localhost:1", topic_prefix="sim", event_bytes_max=4096)
TURNS: Final = SETTINGS.topic("turns")
SPEND: Final = SETTINGS.topic("spend")
CONTROL: Final = SETTINGS.topic("control")
STATUS: Final = SETTINGS.topic("runs")
DEAD: Final = SETTINGS.topic("dead-letter")
RUNS_LOG: Final = "sim-runs-changelog"
ACCOUNTS_LOG: Final = "sim-accounts-changelog"
CHANGELOGS: Final = {"runs": RUNS_LOG, "accounts": ACCOUNTS_LOG}
CURSED: Final = "cursed"  # a node on which the engine fails, after it has changed the state


DEADLY: Final = "deadly"  # a node that ends the process


class Killed(BaseException):
    """The process ends here."""


def cursed(rules: Any, die: Callable[[], None]) -> Any:
    """An engine with two bugs."""
    engine = Feed(rules).engine
    honest = engine.step

    def step(state: Any, event: Any, at_ms: int | None, position: int = -1) -> Any:
        if event.node == DEADLY:
            die()
            raise Killed
        outcome = honest(state, event, at_ms, position)
        if event.node == CURSED:
            raise RuntimeError("a bug in a detector")
        return outcome

    return WrappedEngine(engine, step)  # type: ignore[return-value]


class Recovery:
    """What Faust knows of a recovery that is going on."""

    def __init__(self) -> None:
        self.in_recovery = False
        self.active_tps: set[TP] = set()
        self.active_offsets: dict[TP, int] = {}
        self.active_highwaters: dict[TP, int] = {}
        self.signal_recovery_end = asyncio.Event()

    def need_recovery(self) -> bool:
        return any(end > self.active_offsets[tp] for tp, end in self.active_highwaters.items())

    def _set_recovery_ended(self) -> None:
        self.in_recovery = False


class Fetching:
    """What the consumer asks of aiokafka: records from where it stands, the group's commits."""

    def __init__(self, cluster: Cluster, group: Group, member: Member, most: int) -> None:
        self._cluster = cluster
        self._group = group
        self._member = member
        self._most = most
        self.positions: dict[TP, int] = {}
        self._held: set[TP] = set()

    @property
    def expelled(self) -> bool:
        return self._member.generation < 0

    def hold(self, tps: set[TP], *, held: bool) -> None:
        self._held = self._held | tps if held else self._held - tps

    def seek(self, tp: TP, offset: int) -> None:
        self.positions[tp] = offset

    def next_offset(self, tp: TP) -> int | None:
        return self.positions.get(tp)

    async def fetch(self, tps: set[TP], *, wait: bool) -> Mapping[TP, list[Record]]:
        cluster = self._cluster
        if not wait:
            return self._found(tps) if cluster.rng.random() < 0.5 else {}
        await cluster.pause()
        end_s = cluster.loop.now_s + POLL_S
        while not (found := self._found(tps)) and cluster.loop.now_s < end_s:
            await cluster.news(end_s - cluster.loop.now_s, tps)
        return found

    def _found(self, tps: set[TP]) -> dict[TP, list[Record]]:
        found: dict[TP, list[Record]] = {}
        logs, positions, nothing = self._cluster.logs, self.positions, ()
        for tp in sorted(tp for tp in tps if positions.get(tp, 0) < len(logs.get(tp, nothing))):
            if tp in positions and tp not in self._held:
                position, end = positions[tp], len(logs[tp])
                most = self._cluster.rng.randint(1, self._most)
                found[tp] = records = self._cluster.read(tp, position, most)
                self.positions[tp] = records[-1].offset + 1 if records else end  # none: compacted away
        return {tp: records for tp, records in found.items() if records}

    async def committed_with_metadata(self, tp: TP) -> tuple[int | None, str]:
        await self._cluster.pause()
        place = (tp.topic, tp.partition)
        return self._cluster.committed.get(place), self._cluster.metadata.get(place, "")

    async def commit(self, offsets: Mapping[TP, tuple[int, str]]) -> bool:
        generation = self._member.generation
        await self._cluster.pause()
        done = self._group.commit(self._member, generation, offsets)
        await self._cluster.pause()
        return done


class SimChannel:
    """An in-memory channel as Faust has it: closed while its flow is suspended, cleared when that ends."""

    def __init__(self, app: SimApp) -> None:
        self._app = app
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    async def put(self, value: Any) -> None:
        await self._app.can_flow.wait()
        await self._queue.put(value)

    def clear(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()

    def __aiter__(self) -> SimChannel:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        return await self._queue.get()


class SimApp:
    """What the worker asks of Faust's app: channels, agents, and where it stands in a rebalance."""

    def __init__(self, recovery: Recovery) -> None:
        self.consumer: Any = None
        self.consumer_generation_id = -1
        self.rebalancing = True
        self.in_recovery = False
        self.should_stop = False
        self.can_flow = asyncio.Event()
        self.channels: list[SimChannel] = []
        self.agents: dict[str, Any] = {}
        self.tables = SimpleNamespace(changelog_topics={RUNS_LOG, ACCOUNTS_LOG}, recovery=recovery)
        self.conf = SimpleNamespace(broker_rebalance_timeout=60.0)

    def channel(self) -> SimChannel:
        self.channels.append(SimChannel(self))
        return self.channels[-1]

    def agent(self, channel: SimChannel, *, name: str) -> Any:
        def add(function: Any) -> Any:
            self.agents[name] = lambda: self._supervised(function, channel)
            return function

        return add

    async def _supervised(self, function: Any, channel: SimChannel) -> None:
        """Start an agent again whenever it fails: it continues with what comes next."""
        while True:
            with contextlib.suppress(Exception):
                await function(channel)

    def suspend(self) -> None:
        self.can_flow.clear()
        self.clear()

    def resume(self) -> None:
        self.can_flow.set()
        self.clear()

    def clear(self) -> None:
        for channel in self.channels:
            channel.clear()


class SimConsumer(BatchConsumer):
    """The worker's consumer without Faust's services around it."""

    can_resume_flow: Any

    def __init__(self, app: Any, transport: Any, fetching: Fetching) -> None:  # not Faust's
        self.app = app
        self.transport = transport
        self._thread = fetching
        self._stopped = asyncio.Event()
        self.can_resume_flow = asyncio.Event()
        self._committed_offset: dict[TP, int | None] = {}
        self._committing: asyncio.Future[None] | None = None
        self._init_marks()
        self.mine: set[TP] = set()
        self.active: set[TP] = set()
        self.log = SimpleNamespace(warning=lambda *_: None, info=lambda *_: None)

    flow_active = property(lambda self: self.can_resume_flow.is_set())
    should_stop = property(lambda self: self._stopped.is_set())

    def stop_flow(self) -> None:
        self.can_resume_flow.clear()
        self._withdraw()

    async def wait(self, work: Any) -> None:
        await work

    def _get_active_partitions(self) -> set[TP]:
        return self.active

    def assignment(self) -> set[TP]:
        return self.mine

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        cluster = self._thread._cluster
        await cluster.pause()
        return {tp: len(cluster.log(tp.topic, tp.partition)) for tp in tps}

    async def position(self, tp: TP) -> int | None:
        return self._thread.positions.get(tp)

    async def _commit(self, offsets: Mapping[TP, tuple[int, str]]) -> bool:
        return await self._thread.commit(offsets)

    async def commit(self, *_: Any) -> bool:
        """As in Faust: one at a time; a second caller waits for the first and commits nothing."""
        if self._committing is not None:
            await asyncio.wait([self._committing])
            return False
        self._committing = asyncio.get_running_loop().create_future()
        try:
            offsets = self._filter_committable_offsets(())
            return bool(offsets) and await self.commit_offsets(offsets)
        finally:
            done, self._committing = self._committing, None
            done.set_result(None)


def _store(kind: type[Any], changelog: str) -> Any:
    """A store without the service that Faust makes of it."""
    store = kind.__new__(kind)
    store.table = SimpleNamespace(changelog_topic=SimpleNamespace(get_topic_name=lambda: changelog))
    store.__post_init__()
    return store


class WorkerRun:
    """One run of a worker, from its start until it stops or is killed."""

    def __init__(self, name: str, cluster: Cluster, group: Group, rules: Any, *, fetch_most: int, active: int) -> None:
        self.process = Process(name)
        self.cluster, self.group = cluster, group
        self.member = Member(self.process)
        self.over = asyncio.Event()
        self.stop = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.violations: list[str] = []
        count = cluster.partitions
        partitions = dict.fromkeys((TURNS, SPEND, CONTROL, STATUS, DEAD, RUNS_LOG, ACCOUNTS_LOG), count)
        self.die: Callable[[], None] = lambda: None
        engine = cursed(rules, lambda: self.die())
        self.publisher = SimPublisher(cluster, self.process, SETTINGS, CHANGELOGS, partitions)
        home = home_of(SETTINGS, count)
        limits: dict[str, Any] = {"dead_letter_bytes": 8192, "version": "1"}
        self.processor = TurnProcessor(engine, TURNS, event_bytes_max=4096, home=home, calls=True, **limits)
        self.accounts = AccountProcessor(SPEND, policy=rules, **limits)
        self.store: RunStore = _store(RunStore, RUNS_LOG)
        self.account_store: AccountStore = _store(AccountStore, ACCOUNTS_LOG)
        self.store.run_limits.now_ms = self.account_store.now_ms = lambda: int(cluster.loop.now_s * 1000)
        self.store.run_limits.due_ms = lambda state: due.due_ms if (due := engine.next_deadline(state)) else 0
        self.store.run_limits.share = lambda _partitions: None  # type: ignore[method-assign]
        self.store.run_limits.active_share = active
        failed = lambda problem: Worker._failed(self, problem)  # type: ignore[arg-type]  # noqa: E731
        self.pipelines = PartitionPipelines("runs", self.store, self.processor, self.publisher, failed)
        self.account_pipelines = PartitionPipelines(
            "accounts", self.account_store, self.accounts, self.publisher, failed, ACCOUNT_LINGER_S
        )
        self.fleet_commands = SimpleNamespace(keep=lambda _mine: None, have=lambda _mine: None)
        self.status_retention = SimpleNamespace(leave=lambda: None, have=lambda _mine: None)
        self.store.retained = lambda mine: Worker._retain(self, mine)  # type: ignore[arg-type]
        self.account_store.retained = self.account_pipelines.retain
        self.recovery = Recovery()
        self.app = SimApp(self.recovery)
        slices = add_slice_agents(self.app, self.pipelines, self.account_pipelines)
        transport = SimpleNamespace(
            pipelines={TURNS: self.pipelines, SPEND: self.account_pipelines},
            stores={RUNS_LOG: self.store, ACCOUNTS_LOG: self.account_store},
            channels={TURNS: slices.turns, SPEND: slices.spend},
        )
        self.fetching = Fetching(cluster, group, self.member, fetch_most)
        self.consumer = self.app.consumer = SimConsumer(self.app, transport, self.fetching)
        self.deadlines = Deadlines(self.app, TURNS, engine, self.store, self.pipelines, self.publisher, home)
        self.provider_clock = ProviderClock(
            self.app, rules.providers, self.account_store, self.account_pipelines, cluster.now_ms
        )
        self._turns, self._count = TURNS, count

    # As in `worker.composition.Worker`.

    async def run(self) -> None:
        """Run until a stop is requested or something fails."""
        stop = asyncio.ensure_future(self.stop.wait())
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(work)
            for work in (
                self._membership(), self._commits(), self.deadlines.run(),
                *(run() for run in self.app.agents.values()),
                self.consumer._drain_messages(SimpleNamespace(_stopped=self.consumer._stopped)),
            )
        ]  # fmt: skip
        self.group.beat(self.member)
        done, _ = await asyncio.wait({stop, self._failure, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done & {self._failure}:
            task.exception()  # it is known
        for task in done - {stop, self._failure}:
            self.violations.append(f"{self.process.name}: a part of the worker ended: {task.exception()!r}")
        tasks[0].cancel()
        await self._revoke()
        self.consumer._stopped.set()
        for task in tasks:
            task.cancel()
        self.pipelines.retain(set())
        self.account_pipelines.retain(set())
        self.group.leave(self.member)
        self.over.set()

    async def _commits(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_INTERVAL_S)
            if not (self.app.rebalancing or self.app.in_recovery):
                self.provider_clock.look()
            await self.consumer.commit()

    async def _membership(self) -> None:
        """Do what Faust and aiokafka do at rebalances."""
        while True:
            generation, partitions = await self.group.join(self.member)
            self.member.must_join.clear()
            recovering = asyncio.ensure_future(self._begin(generation, partitions))
            recovering.add_done_callback(lambda task: task.cancelled() or self._crashed_by(task.exception()))
            await self.member.must_join.wait()
            recovering.cancel()
            await self._revoke()

    def _crashed_by(self, problem: BaseException | None) -> None:
        if problem is not None:
            self.violations.append(f"{self.process.name}: the rebalance failed: {problem!r}")

    async def _revoke(self) -> None:
        self.app.rebalancing = True
        self.consumer.stop_flow()
        self.app.suspend()
        if self.consumer.mine:
            await self.consumer.wait_empty()

    async def _begin(self, generation: int, partitions: set[int]) -> None:
        consumer, recovery = self.consumer, self.recovery
        stores: dict[str, PartitionStore[Any]] = {RUNS_LOG: self.store, ACCOUNTS_LOG: self.account_store}
        consumer.mine = {TP(topic, n) for topic in (TURNS, SPEND, *stores) for n in partitions}
        self.fetching.positions.clear()
        self.fetching.hold(set(consumer.mine), held=True)
        self.app.consumer_generation_id = generation
        recovery.active_highwaters.clear()
        for store in stores.values():
            await store.on_rebalance(consumer.mine, set(), set(), generation)
        self._check_memory(partitions)
        consumer.active = recovery.active_tps = {tp for tp in consumer.mine if tp.topic in stores}
        recovery.active_offsets = {tp: stores[tp.topic].persisted_offset(tp) for tp in recovery.active_tps}
        for tp, offset in recovery.active_offsets.items():
            self.fetching.positions[tp] = offset + 1
        self.app.in_recovery = recovery.in_recovery = True
        recovery.signal_recovery_end.clear()
        self.fetching.hold(recovery.active_tps, held=False)
        ends = await consumer.highwaters(*recovery.active_tps)
        recovery.active_highwaters.update({tp: end - 1 for tp, end in ends.items()})
        self.app.resume()
        consumer.can_resume_flow.set()
        if recovery.need_recovery():
            await recovery.signal_recovery_end.wait()
        self.app.in_recovery = recovery.in_recovery = False
        self.fetching.hold(recovery.active_tps, held=True)
        await Worker._recovered(self)  # type: ignore[arg-type]
        await self._seek(generation)

    async def _seek(self, generation: int) -> None:
        events = {tp for tp in self.consumer.mine if tp.topic in (TURNS, SPEND)}
        await self.cluster.pause()
        for tp in events:
            committed = self.cluster.committed.get((tp.topic, tp.partition))
            self.consumer._committed_offset[tp] = committed
            self.fetching.positions[tp] = committed or 0
            self.consumer._catch_up({tp: committed})
        self.fetching.hold(events, held=False)
        self.consumer.active = events
        await asyncio.sleep(0)
        self.app.resume()  # Faust clears its channels once more
        self.app.rebalancing = False

    def _check_memory(self, partitions: set[int]) -> None:
        """Check that partitions of other workers are dropped."""
        for pipelines, store in ((self.pipelines, self.store), (self.account_pipelines, self.account_store)):
            left = (set(pipelines._pipelines) | set(pipelines._tasks) | set(store.partitions)) - partitions
            if left:
                self.violations.append(f"{self.process.name}: still has partitions {sorted(left)}")
        runs = sum(map(len, self.store.partitions.values()))
        if self.store.run_limits.runs != runs:
            self.violations.append(f"{self.process.name}: counts {self.store.run_limits.runs} runs and has {runs}")
