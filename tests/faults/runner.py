"""Run scenarios, a few at a time: each spends most of its time waiting for a session time-out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from tests.faults import admission, brokers, bursts, logs, surfaces, workers
from tests.faults.scenario import Result, Scenario

CONCURRENT_SHORT, CONCURRENT_LONG = 3, 2  # scenarios at a time
SHORT_S, LONG_S = 300, 900  # a scenario that takes longer hangs

BATCH: Final = ("batch",)
BOTH: Final = ("batch", "stock")


class Fault(NamedTuple):
    """What to do, the worker's paths in the short mode and in the long one, and the settings. One that is `standalone`
    opens and finishes its scenario itself."""

    inject: Callable[[Scenario], Awaitable[None]]
    short_paths: tuple[str, ...] = BATCH
    paths: tuple[str, ...] = BOTH
    settings: dict[str, object] = {}  # noqa: RUF012 (never modified)
    standalone: bool = False


FAULTS: Final = {
    "kill -9": Fault(workers.killed, BOTH), "frozen": Fault(workers.frozen),
    "frozen alone": Fault(workers.frozen_alone), "1 to 3 to 2 workers": Fault(workers.rescaled, BOTH),
    "disk full": Fault(workers.full, settings={"store": "rocksdb"}),
    "detectors raise": Fault(workers.buggy, standalone=True),
    "broker killed": Fault(brokers.broker_killed, standalone=True),
    "broker away": Fault(brokers.broker_away, ("stock",), standalone=True),
    "all workers gone": Fault(surfaces.workers_gone, short_paths=(), paths=BATCH),
    "broker gone": Fault(surfaces.broker_gone, short_paths=(), paths=BATCH, standalone=True),
    "compaction": Fault(logs.compacted), "duplicates": Fault(logs.duplicated),
    "Redis gone": Fault(admission.redis_gone), "poison": Fault(logs.poisoned, BOTH),
    "poison burst": Fault(bursts.burst, paths=BATCH, standalone=True), "garbage": Fault(logs.flooded),
    "clock steps": Fault(logs.clocks),
    "clock steps in the log": Fault(logs.clocks, settings={"timestamp_type": "CreateTime"}),
}  # fmt: skip


class Case(NamedTuple):
    """One fault on one path of the worker."""

    fault: str
    path: str


class Mode(NamedTuple):
    """The short mode of `make test`, or the long one of `make faults`, which sets the variables."""

    long: bool
    seed: int
    only: frozenset[str]
    report: Path | None

    @classmethod
    def from_environment(cls) -> Mode:
        """Read FAULTS_LONG, FAULTS_SEED, FAULTS_ONLY (names) and FAULTS_REPORT (a file)."""
        report = os.environ.get("FAULTS_REPORT")
        return cls(
            bool(os.environ.get("FAULTS_LONG")),
            int(os.environ.get("FAULTS_SEED", "1")),
            frozenset(filter(None, os.environ.get("FAULTS_ONLY", "").split(","))),
            Path(report) if report else None,
        )

    def cases(self) -> list[Case]:
        """Return the cases to run."""
        return [
            Case(name, path)
            for name, fault in FAULTS.items()
            if not self.only or name in self.only
            for path in (fault.paths if self.long or name in self.only else fault.short_paths)
        ]


class Runner:
    """Runs the cases of a test run in a separate thread, a limited number at a time."""

    def __init__(self, mode: Mode, brokers: str, directory: Path, cases: list[Case]) -> None:
        self._mode = mode
        self._brokers = brokers
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._slots = asyncio.Semaphore(CONCURRENT_LONG if mode.long else CONCURRENT_SHORT)
        self._results: dict[Case, Future[None]] = {
            case: asyncio.run_coroutine_threadsafe(self._run(case), self._loop) for case in cases
        }

    def result(self, case: Case) -> None:
        """Wait for a case to finish. Raises the error of a case that failed."""
        self._results[case].result()

    def close(self) -> None:
        """Stop the cases that are still running."""
        for future in self._results.values():
            future.cancel()
        asyncio.run_coroutine_threadsafe(self._cancel_tasks(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    async def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, case: Case) -> None:
        mode = self._mode
        result = Result(case.fault, case.path, mode.seed)
        async with self._slots:
            directory = self._directory / re.sub(r"\W+", "-", f"{case.fault}-{case.path}")
            fault = FAULTS[case.fault]
            scenario = Scenario(result, long=mode.long, brokers=self._brokers, directory=directory, **fault.settings)
            began = time.monotonic()
            try:
                async with asyncio.timeout(LONG_S if mode.long else SHORT_S):
                    await (fault.inject(scenario) if fault.standalone else scenario.run(fault.inject))
            except Exception as problem:
                problem.add_note(
                    f"seed {mode.seed}; to repeat: make faults ARGS='--only \"{case.fault}\" --seed {mode.seed}'"
                )
                problem.add_note(f"worker logs: {directory}")
                raise
            finally:
                await asyncio.to_thread(scenario.close)
            result.took_s = time.monotonic() - began
        if mode.report is not None:
            with mode.report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
