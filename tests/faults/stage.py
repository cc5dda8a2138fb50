"""Plays scenes, a few at a time: most of the time of each is spent waiting for a session to run out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.faults import admission, brokers, inputs, workers
from tests.faults.scene import Figures, Scene

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

AT_ONCE_SHORT, AT_ONCE_LONG = 3, 2  # scenes at a time
SHORT_S, LONG_S = 300, 900  # a scene that takes longer hangs

BATCH: Final = ("batch",)
BOTH: Final = ("batch", "stock")


class Fault(NamedTuple):
    """What is done, on which paths of the worker it is done in the short form and in the long one, with which settings;
    and whether it opens and finishes its scene itself."""

    do: Callable[[Scene], Awaitable[None]]
    short_paths: tuple[str, ...] = BATCH
    paths: tuple[str, ...] = BOTH
    settings: dict[str, object] = {}  # noqa: RUF012 (nobody changes it)
    alone: bool = False


FAULTS: Final = {
    "kill -9": Fault(workers.killed, BOTH),
    "frozen": Fault(workers.frozen),
    "frozen alone": Fault(workers.frozen_alone),
    "1 to 3 to 2 workers": Fault(workers.rescaled, BOTH),
    "disk full": Fault(workers.full, settings={"store": "rocksdb"}),
    "detectors raise": Fault(workers.buggy, alone=True),
    "broker killed": Fault(brokers.broker_killed, alone=True),
    "broker away": Fault(brokers.broker_away, ("stock",), alone=True),
    "compaction": Fault(inputs.compacted),
    "duplicates": Fault(inputs.duplicated),
    "Redis gone": Fault(admission.redis_gone),
    "poison": Fault(inputs.poisoned, BOTH),
    "garbage": Fault(inputs.flooded),
    "clock steps": Fault(inputs.clocks),
    "clock steps in the log": Fault(inputs.clocks, settings={"timestamp_type": "CreateTime"}),
}


class Part(NamedTuple):
    """One fault on one path of the worker."""

    fault: str
    path: str


class Form(NamedTuple):
    """How it is played: as `make test` does, or as `make faults` does, which sets these variables."""

    long: bool
    seed: int
    only: frozenset[str]
    report: Path | None

    @classmethod
    def of_environment(cls) -> Form:
        """As the environment says: FAULTS_LONG, FAULTS_SEED, FAULTS_ONLY (names), FAULTS_REPORT (a file)."""
        report = os.environ.get("FAULTS_REPORT")
        return cls(
            bool(os.environ.get("FAULTS_LONG")),
            int(os.environ.get("FAULTS_SEED", "1")),
            frozenset(filter(None, os.environ.get("FAULTS_ONLY", "").split(","))),
            Path(report) if report else None,
        )

    def parts(self) -> list[Part]:
        """What is played."""
        return [
            Part(name, path)
            for name, fault in FAULTS.items()
            if not self.only or name in self.only
            for path in (fault.paths if self.long else fault.short_paths)
        ]


class Stage:
    """Plays the parts of a run of tests in a thread of its own, as many at a time as may be."""

    def __init__(self, form: Form, brokers: str, directory: Path, parts: list[Part]) -> None:
        self._form = form
        self._brokers = brokers
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._turnstile = asyncio.Semaphore(AT_ONCE_LONG if form.long else AT_ONCE_SHORT)
        self._ends: dict[Part, Future[None]] = {
            part: asyncio.run_coroutine_threadsafe(self._play(part), self._loop) for part in parts
        }

    def result(self, part: Part) -> None:
        """Wait for the end of a part. Raises what went wrong in it."""
        self._ends[part].result()

    def close(self) -> None:
        """Stop what is still being played."""
        for end in self._ends.values():
            end.cancel()
        asyncio.run_coroutine_threadsafe(self._over(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    async def _over(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, part: Part) -> None:
        form = self._form
        figures = Figures(part.fault, part.path, form.seed)
        async with self._turnstile:
            directory = self._directory / re.sub(r"\W+", "-", f"{part.fault}-{part.path}")
            fault = FAULTS[part.fault]
            scene = Scene(figures, long=form.long, brokers=self._brokers, directory=directory, **fault.settings)
            began = time.monotonic()
            try:
                async with asyncio.timeout(LONG_S if form.long else SHORT_S):
                    await (fault.do(scene) if fault.alone else scene.play(fault.do))
            except Exception as problem:
                problem.add_note(
                    f"seed {form.seed}; again: make faults ARGS='--only \"{part.fault}\" --seed {form.seed}'"
                )
                problem.add_note(f"logs of the workers: {directory}")
                raise
            finally:
                await asyncio.to_thread(scene.close)
            figures.took_s = time.monotonic() - began
        if form.report is not None:
            with form.report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(figures)) + "\n")
