"""What a `Watch` feeds: a `Monitor` in this process; the one on Kafka is in `kafka_backend`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, ref

from streamproc.core.graph import check_graph
from streamproc.errors import Halted, ProviderUnavailable, TaskEnded
from streamproc.model.control_types import ENDS_OF_TASKS
from streamproc.model.newest import Newest

if TYPE_CHECKING:
    from streamproc.client.waits import Waits
    from streamproc.model.controls import ControlEvent, RunStatus
    from streamproc.monitor import Monitor

REPORTED_MAX: Final = 20_000  # agents, calls or answers at work that an adapter reports
LOOK_EVERY_S: Final = 0.25  # while a call waits for its provider
WARNINGS_MAX: Final = 10_000  # runs with a warning that the model was not told


class Reporters:
    """Who reports what: the first of several adapters that hear the same. Thread-safe."""

    def __init__(self) -> None:
        self._owners: Newest[Hashable, ref[object]] = Newest(REPORTED_MAX)
        self._lock = threading.Lock()

    def owns(self, what: Hashable, owner: object) -> bool:
        """Return whether `owner` reports this: no other adapter has asked before."""
        with self._lock:
            found = self._owners.get(what)
            first = None if found is None else found()
            if first is None:
                self._owners[what] = ref(owner)
        return first is None or first is owner


class Warnings:
    """The newest warning of each run, until it is taken. Thread-safe."""

    def __init__(self, told: Callable[[ControlEvent], None] | None = None) -> None:
        self._told = told
        self._newest: Newest[str, ControlEvent] = Newest(WARNINGS_MAX)
        self._lock = threading.Lock()

    def add(self, control: ControlEvent) -> None:
        """Keep a warning in place of the run's earlier one."""
        if control.severity != "warn":
            return
        if self._told is not None:
            self._told(control)
        with self._lock:
            self._newest[control.run_id] = control

    def take(self, run_id: str) -> ControlEvent | None:
        """Return and forget the warning of a run."""
        if run_id not in self._newest:
            return None
        with self._lock:
            return self._newest.pop(run_id, None)


_reporters: WeakKeyDictionary[Monitor, Reporters] = WeakKeyDictionary()


class MonitorBackend:
    """The engine in this process. `told` is called with each warning. `KafkaBackend` has the same methods."""

    def __init__(self, monitor: Monitor | None = None, told: Callable[[ControlEvent], None] | None = None) -> None:
        if monitor is None:
            from streamproc.monitor import Monitor  # takes the detectors with it

            monitor = Monitor()
        self._monitor = monitor
        self._lock = threading.Lock()  # held while the engine steps, which does no I/O
        self._warnings = Warnings(told)
        self._ended: Newest[str, None] = Newest(WARNINGS_MAX)  # runs of which a task has ended

    def feed(self, event: dict[str, Any]) -> None:
        """Take a raw event. Raises `InvalidEvent`."""
        if event["type"] == "run.started" and event.get("graph") is not None:
            check_graph(event["graph"])
        with self._lock:
            for control in self._monitor.feed(event):
                self._warnings.add(control)
                if control.type in ENDS_OF_TASKS:
                    self._ended[control.run_id] = None

    def check(self, run_id: str, task: str = "") -> None:
        """Raise `Halted` if the run is halted, `TaskEnded` if this task of it has ended."""
        halt = self._monitor.halted(run_id)
        if halt is not None:
            raise Halted(halt)
        status = self.status(run_id) if task and run_id in self._ended else None
        for end in status.ended_tasks if status is not None else ():
            if end.task_id == task:
                raise TaskEnded(run_id, task, reason=f"{end.code} has ended it ({end.terminal_status})")

    def halted(self, run_id: str) -> ControlEvent | None:
        """Return the decision that halted the run."""
        return self._monitor.halted(run_id)

    def warning(self, run_id: str) -> ControlEvent | None:
        """Return the newest warning that was not returned before."""
        return self._warnings.take(run_id)

    def status(self, run_id: str) -> RunStatus | None:
        """Return the status of the run. Raises `StreamprocError` where it is not known here."""
        with self._lock:
            return self._monitor.status(run_id)

    def resume(self, run_id: str, **fields: Any) -> None:
        """Resume the run. Raises `StreamprocError` where only an operator may."""
        self.feed({"type": "operator.resume", "run_id": run_id, **fields})

    def reporters(self) -> Reporters:
        """Return who reports what, of all that feed the same engine."""
        return _reporters.setdefault(self._monitor, Reporters())

    def enter(self, name: str, run_id: str, permit: str, *, wait: bool) -> str:
        """Return the permit of a call of a provider and model, empty if it needs none, once it may be made. Raises
        `ProviderUnavailable` without `wait`."""
        while not self._may_enter(name, run_id, permit, wait=wait):
            time.sleep(LOOK_EVERY_S)
        return permit

    async def enter_async(self, name: str, run_id: str, permit: str, *, wait: bool) -> str:
        """Do the same in an event loop."""
        while not self._may_enter(name, run_id, permit, wait=wait):
            await asyncio.sleep(LOOK_EVERY_S)
        return permit

    def _may_enter(self, name: str, run_id: str, permit: str, *, wait: bool) -> bool:
        try:
            with self._lock:
                self._monitor.provider(name, run_id=run_id, at=time.time_ns() // 1_000_000, permit=permit)
        except ProviderUnavailable:
            if not wait:
                raise
            self.check(run_id)
            return False
        return True

    def called(self, event: dict[str, Any]) -> None:
        """Take a ``model.called`` event. The engine knows no other time than that of events."""
        with self._lock:
            for control in self._monitor.feed({"type": "model.called", "at": time.time_ns() // 1_000_000, **event}):
                self._warnings.add(control)

    def waits(self, run_id: str) -> Waits | None:
        """Return what a step of the run waits for before it begins; None: nothing, as the engine is here."""
        return None

    def flush(self, timeout_s: float) -> bool:
        """Wait until what was fed has arrived: nothing is under way."""
        return True

    def close(self) -> None:
        """Deliver what is under way."""
