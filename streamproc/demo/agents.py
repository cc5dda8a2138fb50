"""The agents of the demo: recorded runs, replayed turn by turn, and a scripted loop. Each runs under a guard.

Like agents in production they publish their turns and contain no loop detection: the guard stops them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from streamproc.client import HaltListener, TurnPublisher
from streamproc.demo.trajectories import Trajectory
from streamproc.errors import Halted
from streamproc.model.controls import ControlEvent

LOOP_RUN: Final = "demo/coder-verifier"
LOOP_SLOWDOWN: Final = 6  # the scripted loop takes turns more slowly, so that you can read along
HALT_TIMEOUT_S: Final = 20.0  # for an expected halt; a busy machine is slow, not broken
ATTEMPTS_MAX: Final = 12  # if nothing stops the scripted loop by then, the breaker is broken
FAILING: Final = ["test_sort_is_stable", "test_sort_of_nothing"]
PATCHES: Final = ("if left <= right: take(left)", "if left < right: take(left)", "if not left > right: take(left)")
GRAPH: Final = {
    "nodes": ["coder", "verifier", "done"],
    "edges": [["coder", "verifier"], ["verifier", "coder"], ["verifier", "done"]],
}


class Display(Protocol):
    """Shows the progress of the demo."""

    def turn_taken(self) -> None: ...

    def run_ended(self, run: DemoRun) -> None: ...

    def message(self, text: str) -> None: ...


@dataclass(slots=True)
class DemoRun:
    """One run of the demo: its turns so far, its halt, and the reaction time of its guard."""

    run_id: str
    total: int
    trajectory: Trajectory | None = None
    taken: int = 0
    done: bool = False
    halt: ControlEvent | None = None
    reaction_ms: float | None = None
    """Time from passing the triggering turn to the publisher until the guard cancelled the agent."""
    _sent_at_s: list[float] = field(default_factory=list)

    def sent(self) -> None:
        """Record that a turn is passed to the publisher now."""
        self._sent_at_s.append(time.monotonic())
        self.taken += 1

    def halted(self, halted: Halted) -> None:
        """Record that the guard has cancelled this run."""
        self.halt = halted.control
        turn = self.halted_at
        if turn is not None and turn < len(self._sent_at_s):
            self.reaction_ms = (time.monotonic() - self._sent_at_s[turn]) * 1000

    @property
    def halted_at(self) -> int | None:
        """Index of the turn that triggered the halt."""
        return self.halt.turn if self.halt is not None else None


class AgentRunner:
    """Runs agents under guards. Each waits `pause_s` before a turn.

    With `live`, recorded turns happen now, and runs say that they have finished, as the page shows times and states;
    else they keep the time between them that was recorded.
    """

    def __init__(
        self, turns: TurnPublisher, halts: HaltListener, display: Display, pause_s: float, *, live: bool = False
    ) -> None:
        self._live = live
        self._turns = turns
        self._halts = halts
        self._display = display
        self._pause_s = pause_s

    async def trajectory(self, run: DemoRun, starts_after_s: float) -> None:
        """Replay a recorded run until it ends or is halted."""
        assert run.trajectory is not None
        await asyncio.sleep(starts_after_s)
        try:
            async with self._halts.guard(run.run_id):
                for turn in run.trajectory.turns:
                    await asyncio.sleep(self._pause_s)
                    run.sent()
                    await self._turns.send(turn.model_copy(update={"at": None}) if self._live else turn)
                    self._display.turn_taken()
                if run.trajectory.halt_at is not None:
                    await asyncio.sleep(HALT_TIMEOUT_S)
                elif self._live:
                    await self._turns.run_finished(run_id=run.run_id)
        except Halted as halted:
            run.halted(halted)
        run.done = True
        self._display.run_ended(run)

    async def coder_and_verifier(self, run: DemoRun) -> None:
        """Run a coder that patches the same line again and again, and a verifier whose tests keep failing."""
        try:
            async with self._halts.guard(run.run_id):
                await self._turns.run_started(run_id=run.run_id, workflow="demo", graph=GRAPH)
                for attempt in range(ATTEMPTS_MAX):
                    await self._attempt(run, attempt)
                await asyncio.sleep(HALT_TIMEOUT_S)
        except Halted as halted:
            run.halted(halted)
        run.done = True
        self._display.run_ended(run)

    async def _attempt(self, run: DemoRun, attempt: int) -> None:
        patch = PATCHES[attempt % len(PATCHES)]
        await self._pause()
        run.sent()
        await self._turns.turn(run_id=run.run_id, node="coder", artifact={"sort.py": patch})
        self._display.turn_taken()
        await self._pause()
        run.sent()
        report = {"failed": FAILING, "passed": 7, "total": 9}
        await self._turns.send({"run_id": run.run_id, "node": "verifier", "from": "coder", "tests": report})
        self._display.turn_taken()
        self._display.message(f"coder, attempt {attempt + 1}: `{patch}`; verifier: {len(FAILING)} of 9 tests fail")

    async def _pause(self) -> None:
        await asyncio.sleep(LOOP_SLOWDOWN * self._pause_s)
