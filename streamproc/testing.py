"""For your tests: is your agent stopped by your policy? No broker, no waiting, the same answer each time.

    pytest_plugins = ["streamproc.testing"]  # in the root conftest.py: the fixtures below

    def test_a_stuck_agent_is_stopped(streamproc_watch):
        with pytest.raises(Halted):
            my_agent(Breaker(streamproc_watch)).run("Fix it.")

The fixtures are asked for by that line and not registered as a plugin of pytest: an entry point would be imported into
every test session on a machine that has streamproc, before the measurement of coverage starts.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from streamproc.client.listener import HaltListener
from streamproc.client.publisher import TurnPublisher
from streamproc.core.deadlines import deadline_event
from streamproc.errors import Halted, TaskEnded
from streamproc.integrations.watch import Watch
from streamproc.model.control_types import ENDS_OF_TASKS
from streamproc.model.raw_events import RawEvent
from streamproc.monitor import Monitor
from streamproc.settings import Settings

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent
    from streamproc.model.wire import Event
    from streamproc.policy import Policy
    from streamproc.policy.layers import Source

__all__ = [
    "ManualClock", "MemoryListener", "MemoryPublisher", "RecordingMonitor", "ScriptedSource", "trace",
]  # fmt: skip

START: Final = "2026-01-01T00:00:00+00:00"
TOKEN: Final = re.compile(r"(?:(?P<node>[^\s:]+):)?(?P<step>[^\s:*+!]+)(?P<mark>[+!]?)(?:\*(?P<times>\d+))?")

Raw = dict[str, Any]


class ManualClock:
    """Log time that moves only when a test moves it.

    >>> clock = ManualClock()
    >>> clock.advance(90)
    >>> clock.now.isoformat()
    '2026-01-01T00:01:30+00:00'
    """

    def __init__(self, start: str = START) -> None:
        self.at_ms = int(datetime.fromisoformat(start).timestamp() * 1000)
        """Milliseconds since 1970, as in the field `at` of an event."""
        self._listeners: list[Callable[[], object]] = []

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)

    def advance(self, seconds: float) -> None:
        """Let time pass. Monitors on this clock then decide about time limits that are over."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self.at_ms += round(seconds * 1000)
        for listener in self._listeners:
            listener()

    async def sleep(self, seconds: float) -> None:
        """Let time pass at once, in place of `asyncio.sleep` in the code under test."""
        self.advance(seconds)
        await asyncio.sleep(0)

    def on_advance(self, listener: Callable[[], object]) -> None:
        """Call a function each time that time has passed."""
        self._listeners.append(listener)


class RecordingMonitor(Monitor):
    """A `Monitor` on a clock, which remembers what it was fed and what it decided.

    Events get the time of the clock, unless they have one. When the clock advances, time limits are enforced as workers
    do it, also for runs that are silent. Give it to `Watch`, `MemoryPublisher` and `MemoryListener`.
    """

    def __init__(
        self, policy: Policy | Source | None = None, *, clock: ManualClock | None = None, **options: Any
    ) -> None:
        super().__init__(policy, **options)
        self.clock = clock or ManualClock()
        self.clock.on_advance(self._enforce)
        self.events: list[Raw] = []
        """All events, as they were fed."""
        self.controls: list[ControlEvent] = []
        """All decisions."""
        self._listeners: list[Callable[[ControlEvent], object]] = []

    def feed(self, turn: Mapping[str, Any] | None = None, /, **fields: Any) -> list[ControlEvent]:
        event = {"at": self.clock.at_ms, **(turn or {}), **fields}
        self.events.append(event)
        return super().feed(event)

    def play(self, events: Iterable[Mapping[str, Any]]) -> list[ControlEvent]:
        """Feed events one after another, those after a halt too, and return all decisions about them."""
        return [control for event in events for control in self.feed(event)]

    @property
    def halts(self) -> list[ControlEvent]:
        """The decisions that halted a run."""
        return [control for control in self.controls if control.severity == "halt"]

    @property
    def warnings(self) -> list[ControlEvent]:
        """The decisions that warned about a run."""
        return [control for control in self.controls if control.severity == "warn"]

    def on_control(self, listener: Callable[[ControlEvent], object]) -> None:
        """Call a function with each decision."""
        self._listeners.append(listener)

    def _decisions(self, event: Event) -> list[ControlEvent]:
        controls = super()._decisions(event)
        self.controls += controls
        for control in controls:
            for listener in self._listeners:
                listener(control)
        return controls

    def _enforce(self) -> None:
        """Decide about the deadlines that have passed, in their order."""
        while passed := [
            (due.due_ms, run_id, due)
            for run_id in self._runs
            if (run := self._runs.read(run_id)) is not None
            and (due := self._engine.next_deadline(run)) is not None
            and due.due_ms <= self.clock.at_ms
        ]:
            _, run_id, due = min(passed)
            self._decisions(deadline_event(run_id, due))


def trace(
    text: str, *, run_id: str = "r1", node: str = "agent", step: Callable[[str, int], Raw] | None = None
) -> list[Raw]:
    """Return the turns that a short text describes: the shape of a loop without its content.

    ``A`` is a step that is the same each time: a call of the tool A that returns the same. ``A+`` returns something new
    each time, ``A!`` fails in the same way. ``planner:A`` is a step of another node, ``A*3`` three steps in a row. With
    a `step`, equal names and the count of the name so far make the fields of a turn: ``lambda name, time: {"output":
    name}``.

    >>> [turn["tool_calls"][0]["name"] for turn in trace("A B*2")]
    ['A', 'B', 'B']
    """
    turns: list[Raw] = []
    seen: Counter[str] = Counter()
    for token in text.split():
        found = TOKEN.fullmatch(token)
        if found is None:
            raise ValueError(f"{token!r} is no step: write A, A+ (new result), A! (error), node:A or A*3")
        for _ in range(int(found["times"] or 1)):
            name = found["step"]
            seen[name] += 1
            turn: Raw = {"run_id": run_id, "node": found["node"] or node}
            if turns and turns[-1]["node"] != turn["node"]:
                turn["from"] = turns[-1]["node"]
            turns.append(turn | (step(name, seen[name]) if step else _call(name, found["mark"], seen[name])))
    return turns


def _call(name: str, mark: str, time: int) -> Raw:
    if mark == "!":
        outcome = {"error": f"{name} is not available"}
    else:
        outcome = {"result": f"the result of {name}" + (f": {_word(time)}" if mark == "+" else "")}
    return {"tool_calls": [{"name": name, "args": {}, **outcome}]}


def _word(number: int) -> str:
    """Return a word for a number: numbers in texts are masked before texts are compared."""
    return "".join(("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu")[int(digit)] for digit in str(number))


class ScriptedSource:
    """The turns of an agent that does what a script says and takes its time: one every `every_s` seconds of the clock.

    ``for turn in source`` or ``async for turn in source``. An agent that obeys stops by itself: with a `stop`, such as
    ``monitor.halted``, the source ends when that returns something for the run of the next turn. `taken` counts turns.
    """

    def __init__(
        self,
        turns: Iterable[Mapping[str, Any]],
        *,
        clock: ManualClock | None = None,
        every_s: float = 1.0,
        stop: Callable[[str], object] | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.taken = 0
        self._turns = turns
        self._every_s = every_s
        self._stop = stop

    def __iter__(self) -> Iterator[Raw]:
        for turn in self._turns:
            self.clock.advance(self._every_s)
            if self._stop is not None and self._stop(str(turn["run_id"])):
                return
            self.taken += 1
            yield {"at": self.clock.at_ms, **turn}

    async def __aiter__(self) -> AsyncIterator[Raw]:
        for turn in self:
            await asyncio.sleep(0)
            yield turn


class MemoryPublisher(TurnPublisher):
    """A `TurnPublisher` whose events are decided by a monitor of this process, at once. Options as there."""

    def __init__(self, monitor: Monitor, **options: Any) -> None:
        super().__init__(settings=Settings.model_construct(), **options)
        self._monitor = monitor
        self._open = False

    async def start(self) -> None:
        self._open = True

    async def flush(self, timeout_s: float = 5.0) -> bool:  # noqa: ARG002  # nothing is under way
        return True

    async def close(self) -> None:
        self._open = False

    async def send(self, event: RawEvent | Mapping[str, Any], *, traceparent: str = "") -> str:
        if not self._open:
            raise RuntimeError("this publisher is not open: use `async with MemoryPublisher(monitor) as turns:`")
        encoded = self.prepare(event, traceparent)  # so that invalid events and unsafe graphs are errors here, too
        if encoded is None:
            return ""
        if isinstance(event, RawEvent):
            event = {"type": event.type, **event.model_dump(by_alias=True, exclude_unset=True)}
        self._monitor.feed(event)
        self.delivered += 1
        await asyncio.sleep(0)  # a guard cancels here, even a loop that waits for nothing else
        return encoded.event_id


class MemoryListener(HaltListener):
    """A `HaltListener` that hears a monitor of this process: its guards cancel their bodies, its checks raise."""

    def __init__(self, monitor: RecordingMonitor) -> None:
        super().__init__(settings=Settings.model_construct())
        self._monitor = monitor
        monitor.on_control(self._heard)

    def check(self, run_id: str, *, task: str = "", agent: str = "") -> None:
        if (halted := self.error(run_id, task=task, agent=agent)) is not None:
            raise halted

    def error(self, run_id: str, *_: str, task: str = "", agent: str = "", **__: str) -> Halted | None:
        control = self._monitor.halted(run_id)
        if control is not None:
            return Halted(control)
        status = self._monitor.status(run_id) if task or agent else None
        for end in status.ended_tasks if status is not None else ():
            if end.task_id == task or (agent and end.agent == agent):
                return TaskEnded(run_id, end.task_id, reason=f"{end.code} has ended it")
        return None

    def halted(self, run_id: str) -> ControlEvent | None:
        return self._monitor.halted(run_id)

    async def start(self) -> None:
        self.caught_up.set()

    async def close(self) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.close()

    def _heard(self, control: ControlEvent) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.offer(control)
        if control.severity == "halt" or control.type in ENDS_OF_TASKS:
            self.guards.fire(control.run_id)


try:
    import pytest
except ImportError:  # the rest works with any test framework
    pass
else:

    @pytest.fixture
    def streamproc_policy() -> Policy | Source | None:
        """The policy of the fixtures below; override it to return yours: the path of a file, or a mapping."""
        return None

    @pytest.fixture
    def streamproc_clock() -> ManualClock:
        """The clock of the fixtures below."""
        return ManualClock()

    @pytest.fixture
    def streamproc_monitor(
        streamproc_policy: Policy | Source | None, streamproc_clock: ManualClock
    ) -> RecordingMonitor:
        """A monitor with your policy."""
        return RecordingMonitor(streamproc_policy, clock=streamproc_clock)

    @pytest.fixture
    def streamproc_watch(streamproc_monitor: RecordingMonitor) -> Iterator[Watch]:
        """A `Watch` for the adapters of frameworks. The test fails if a step could not be watched."""
        watch = Watch(streamproc_monitor)
        yield watch
        assert not watch.faults, f"{watch.faults} steps were not watched: {watch.last_fault!r}"
