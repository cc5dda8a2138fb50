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

from tests.faults import workers
from tests.faults.scene import Figures, Scene

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

AT_ONCE: Final = 3  # scenes at a time
SHORT_S, LONG_S = 300, 900  # a scene that takes longer hangs

BOTH: Final = ("batch", "stock")


class Fault(NamedTuple):
    """What is done, on which paths of the worker it is done, and on which of them in the short form."""

    do: Callable[[Scene], Awaitable[None]]
    paths: tuple[str, ...] = BOTH
    short_paths: tuple[str, ...] = BOTH


FAULTS: Final = {
    "kill -9": Fault(workers.killed),
    "frozen alone": Fault(workers.frozen_alone, short_paths=("batch",)),
    "1, 3, 2 workers": Fault(workers.rescaled),
}


class Part(NamedTuple):
    """One fault on one path of the worker."""

    fault: str
    path: str


class Form(NamedTuple):
    """How it is played: as `make test` does, or as `make faults` does, which sets these variables."""

    long: bool
    seed: int
    report: Path | None

    @classmethod
    def of_environment(cls) -> Form:
        """As the environment says: FAULTS_LONG, FAULTS_SEED, FAULTS_REPORT (a file for the figures)."""
        report = os.environ.get("FAULTS_REPORT")
        return cls(
            bool(os.environ.get("FAULTS_LONG")),
            int(os.environ.get("FAULTS_SEED", "1")),
            Path(report) if report else None,
        )

    def parts(self) -> list[Part]:
        """What is played."""
        return [
            Part(name, path)
            for name, fault in FAULTS.items()
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
        self._turnstile = asyncio.Semaphore(AT_ONCE)
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
            scene = Scene(figures, long=form.long, brokers=self._brokers, directory=directory)
            began = time.monotonic()
            try:
                async with asyncio.timeout(LONG_S if form.long else SHORT_S), scene.open():
                    await FAULTS[part.fault].do(scene)
                    await scene.finish()
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
