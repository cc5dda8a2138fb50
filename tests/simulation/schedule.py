"""Runs one schedule: from its plan to the list of violations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from streamproc.worker import consumer, deadlines, limits, partition_pipeline, publishing, timed_records
from tests.simulation.cluster import Cluster, Group
from tests.simulation.loop import START_S, SimLoop, Stuck
from tests.simulation.machine import ACCOUNTS_LOG, RUNS_LOG, SPEND, TURNS, WorkerRun
from tests.simulation.oracle import violations
from tests.simulation.plan import Fault, Plan, plan, policy

CALM_S: Final = 400.0  # after the last fault, until everything must be done: drains and rebalances take their time
LOOK_S: Final = 1.0
CALM_LOOKS: Final = 4  # in a row, at which everything is done and nothing has been written since the last one
RESTART_S: Final = 1.0
PATIENCE_STEPS: Final = 300  # of the loop, during which a fault waits for its victim to have records in hand


class Schedule:
    """The state of one schedule."""

    def __init__(self, script: Plan) -> None:
        self.plan = script
        rng = random.Random(f"course {script.seed}")
        self.loop = SimLoop(rng)
        self.cluster = Cluster(self.loop, rng, script.partitions)
        self.group: Group
        self.worker_runs: list[WorkerRun] = []  # of each worker the present one
        self.past: list[WorkerRun] = []
        self._faults = list(reversed(script.faults))
        self._struck = asyncio.Event()  # set when all faults are done

    def play(self) -> list[str]:
        """Run the schedule; return everything that is wrong afterwards."""
        with _quiet(), _small(self):
            return self._play()

    def _play(self) -> list[str]:
        found: list[str] = []
        self.loop.strike, self.loop.next_strike = self._strike, 0
        self.loop.set_exception_handler(lambda _loop, problem: found.extend(_faults_in(problem)))
        try:
            self.loop.run_until_complete(self._main())
        except Stuck as problem:
            found.append(f"stuck: {problem}")
        finally:
            self._close_all()
        worker_runs = [*self.past, *self.worker_runs]
        found += [violation for worker_run in worker_runs for violation in worker_run.violations]
        return found or violations(self.cluster, self.worker_runs)

    def _close_all(self) -> None:
        """Close everything that is still running."""
        for task in self.loop.tasks:
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]
        self.loop.close()

    async def _main(self) -> None:
        self.group = Group(self.cluster)
        for number in range(self.plan.workers):
            self._start_worker(f"worker-{number}")
        for one in self.plan.inputs:
            self.loop.call_at(START_S + one.at_s, self.cluster.append, TURNS, one.partition, one.key, one.value)
        await asyncio.sleep(self.plan.inputs[-1].at_s + 0.1 if self.plan.inputs else 0.1)
        await self._struck.wait()
        self.cluster.slow, self.cluster.down_until_s = 1.0, 0.0
        self.cluster.refusals.clear()
        for worker_run in self.worker_runs:
            self.loop.thaw(worker_run.process)
        await self._calm()
        if any(fault.kind in ("freeze", "kill") for fault in self.plan.faults):
            # A recovery finds states that an expelled worker has overwritten. Then compaction may not bring them back.
            self.group.rebalance()
            await self._calm()
            for place, log in self.cluster.logs.items():
                if place[0] in (RUNS_LOG, ACCOUNTS_LOG):
                    self.cluster.compact(place, len(log), lags=False)

    async def _calm(self) -> None:
        """Wait until everything is done."""
        end_s = self.loop.now_s + CALM_S
        calm = 0
        while calm < CALM_LOOKS:
            written = await self.cluster.news(LOOK_S)
            calm = calm + 1 if self._done() and not written else 0
            if self.loop.now_s > end_s:
                raise Stuck(f"not done {CALM_S:g} s after the last fault: {self._left()}")

    def _left(self) -> dict[Any, tuple[int, int]]:
        """Return the partitions that are not committed up to their end, with offset and end."""
        logs = {place: len(log) for place, log in self.cluster.logs.items() if place[0] in (TURNS, SPEND)}
        committed = self.cluster.committed
        return {place: (committed.get(place, 0), end) for place, end in logs.items() if committed.get(place, 0) < end}

    def _done(self) -> bool:
        if any(worker_run.app.rebalancing for worker_run in self.worker_runs):
            return False  # until it has joined and recovered, a worker keeps its old tables
        if self.cluster.in_flight:
            return False  # what a killed worker has sent may arrive after the last recovery, which could not repair it
        mine = [partition for worker_run in self.worker_runs for partition in worker_run.member.partitions]
        return self.group.stable and sorted(mine) == list(range(self.plan.partitions)) and not self._left()

    # Workers.

    def _start_worker(self, name: str) -> None:
        script = self.plan
        worker_run = WorkerRun(
            name, self.cluster, self.group, policy(), fetch_most=script.fetch_most, active=script.active
        )
        worker_run.die = lambda: self.cluster.context.run(self._crash, worker_run)
        self.worker_runs.append(worker_run)
        self.loop.start(worker_run.process, worker_run.run())
        self.loop.create_task(self._follow(worker_run, name), context=self.cluster.context)

    async def _follow(self, worker_run: WorkerRun, name: str) -> None:
        """Start a worker again after each run."""
        await worker_run.over.wait()
        self._retire(worker_run)
        await asyncio.sleep(RESTART_S)
        self._start_worker(name)

    def _retire(self, worker_run: WorkerRun) -> None:
        worker_run.process.dead = True
        self.worker_runs.remove(worker_run)
        self.past.append(worker_run)

    # Faults.

    def _strike(self, step: int) -> float:
        """Let the faults of this step happen; return the step of the next one."""
        while self._faults and self._faults[-1].step <= step:
            fault = self._faults[-1]
            if fault.kind in ("kill", "freeze") and not self._busy(fault) and step < fault.step + PATIENCE_STEPS:
                return step + 1
            self._faults.pop()
            self.cluster.context.run(getattr(self, "_" + fault.kind.partition(" ")[0]), fault)
        if self._faults:
            return self._faults[-1].step
        self._struck.set()
        return float("inf")

    def _busy(self, fault: Fault) -> bool:
        """Return whether the victim has records in hand, the worst moment for a fault."""
        worker_run = self._victim(fault)
        return worker_run is not None and any(pipeline.backlog for pipeline in worker_run.pipelines._pipelines.values())

    def _victim(self, fault: Fault) -> WorkerRun | None:
        return self.worker_runs[fault.worker % len(self.worker_runs)] if self.worker_runs else None

    def _kill(self, fault: Fault) -> None:
        if (worker_run := self._victim(fault)) is not None:
            self._crash(worker_run)

    def _crash(self, worker_run: WorkerRun) -> None:
        """End a process where it stands, and start it again."""
        self._retire(worker_run)
        self.loop.call_later(RESTART_S, self._start_worker, worker_run.process.name, context=self.cluster.context)

    def _freeze(self, fault: Fault) -> None:
        """Freeze a worker, for less than a session, or for more: then it comes back expelled."""
        if (worker_run := self._victim(fault)) is not None:
            self.loop.freeze(worker_run.process)
            self.loop.call_later(30 * fault.amount, self.loop.thaw, worker_run.process, context=self.cluster.context)

    def _stop(self, fault: Fault) -> None:
        if (worker_run := self._victim(fault)) is not None:
            worker_run.stop.set()

    def _join(self, fault: Fault) -> None:
        if len(self.worker_runs) < 4:
            self._start_worker(f"late-{len(self.worker_runs) + len(self.past)}")

    def _rebalance(self, fault: Fault) -> None:
        self.group.rebalance()

    def _away(self, fault: Fault) -> None:
        self.cluster.down_until_s = self.loop.now_s + 60 * fault.amount
        self.cluster.outages += 1

    def _slow(self, fault: Fault) -> None:
        self.cluster.slow = 10 * fault.amount

    def _quick(self, fault: Fault) -> None:
        self.cluster.slow = 0.1

    def _refuse(self, fault: Fault) -> None:
        self.cluster.refusals.append(fault.kind == "refuse after")

    def _compact(self, fault: Fault) -> None:
        for (topic, partition), log in self.cluster.logs.items():
            if topic in (RUNS_LOG, ACCOUNTS_LOG):
                self.cluster.compact((topic, partition), int(len(log) * fault.amount * 1.2))

    def _clock(self, fault: Fault) -> None:
        self.cluster.clock_step_ms = int((fault.amount - 0.5) * 7_200_000)


def _faults_in(problem: dict[str, Any]) -> Iterator[str]:
    """Yield what asyncio reports, except for the remains of killed processes."""
    if "never retrieved" not in problem["message"]:
        yield f"{problem['message']}: {problem.get('exception')!r}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _small(schedule: Schedule) -> Iterator[None]:
    """Scale limits down and use the schedule's clocks while it runs."""
    script, loop = schedule.plan, schedule.loop
    elapsed_s = 0.0

    def hurried() -> float:
        """A clock by which some slices take too long."""
        nonlocal elapsed_s
        if script.ends_early and schedule.cluster.rng.random() < script.ends_early:
            elapsed_s += limits.SLICE_S
        return elapsed_s

    clock = SimpleNamespace(monotonic=loop.time)
    changes: list[tuple[Any, str, Any]] = [
        (consumer, "SLICE_RECORDS_MAX", script.slice_most),
        (partition_pipeline, "SLICE_RECORDS_MAX", script.slice_most),
        (consumer, "IDLE_S", 0.5),  # waits for a rebalance are most of a schedule's steps otherwise
        (partition_pipeline, "BACKLOG_RECORDS_MAX", script.backlog),
        (partition_pipeline, "STORE_RECORDS_MAX", script.store_most),
        (timed_records, "SLICE_CHECK_RECORDS", 1),
        (timed_records, "time", SimpleNamespace(monotonic=hurried)),
        (limits, "DEADLINE_GRACE_S", 1.0),
        (limits, "DEADLINE_TICK_S", script.tick_s),
        (deadlines, "time", clock),
        (publishing, "wall_ms", schedule.cluster.now_ms),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for place, name, value in changes:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


def run(script: Plan) -> list[str]:
    """Run a schedule; return its violations."""
    return Schedule(script).play()


def shrunk(script: Plan) -> Plan:
    """Return a smaller schedule that fails, too, with fewer faults and records."""
    for part in ("faults", "inputs"):
        size = len(getattr(script, part))
        while size:
            place = 0
            while place < len(getattr(script, part)):
                less = script.without(**{part: slice(place, place + size)})
                if run(less):
                    script = less
                else:
                    place += size
            size //= 2
    return script


def run_seed(seed: int) -> list[str]:
    """Run the schedule of a seed; return its violations."""
    return run(plan(seed))
