"""The agents of the demo: recorded runs played again turn by turn, and a scripted loop; each under a guard.

They are what an orchestrator would run: they publish what they did, and know nothing of loops. What stops them is
the guard around them.
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
LOOP_THINKING: Final = 6  # the scripted loop thinks longer, so that a person can read along
LAST_WORD_S: Final = 20.0  # a halt that must come is waited for so long: a busy machine is not a broken breaker
ATTEMPTS_MAX: Final = 12  # a breaker that has not stopped the scripted loop by then is broken
FAILING: Final = ["test_sort_is_stable", "test_sort_of_nothing"]
PATCHES: Final = ("if left <= right: take(left)", "if left < right: take(left)", "if not left > right: take(left)")
GRAPH: Final = {
    "nodes": ["coder", "verifier", "done"],
    "edges": [["coder", "verifier"], ["verifier", "coder"], ["verifier", "done"]],
}


class Audience(Protocol):
    """Who is shown how it goes."""

    def took_turn(self) -> None: ...

    def ended(self, play: Play) -> None: ...

    def said(self, text: str) -> None: ...


@dataclass(slots=True)
class Play:
    """One run as it is played: how many turns were taken, what halted it, how fast the guard was."""

    run_id: str
    total: int
    trajectory: Trajectory | None = None
    taken: int = 0
    done: bool = False
    halt: ControlEvent | None = None
    reaction_ms: float | None = None
    """From handing the turn that did it to the publisher until the guard had cancelled the agent."""
    _sent_at_s: list[float] = field(default_factory=list)

    def sent(self) -> None:
        """A turn goes to the publisher now."""
        self._sent_at_s.append(time.monotonic())
        self.taken += 1

    def halted(self, halted: Halted) -> None:
        """The guard has cancelled this run."""
        self.halt = halted.control
        turn = self.halted_at
        if turn is not None and turn < len(self._sent_at_s):
            self.reaction_ms = (time.monotonic() - self._sent_at_s[turn]) * 1000

    @property
    def halted_at(self) -> int | None:
        """Index of the turn that led to the halt."""
        return self.halt.trigger.turn if self.halt is not None and self.halt.trigger is not None else None


class Stage:
    """Where agents play: a publisher, guards, an audience, and how long an agent thinks before a turn."""

    def __init__(self, turns: TurnPublisher, halts: HaltListener, audience: Audience, thinking_s: float) -> None:
        self._turns = turns
        self._halts = halts
        self._audience = audience
        self._thinking_s = thinking_s

    async def trajectory(self, play: Play, starts_after_s: float) -> None:
        """Play a recorded run until it ends or is halted."""
        assert play.trajectory is not None
        await asyncio.sleep(starts_after_s)
        try:
            async with self._halts.guard(play.run_id):
                for turn in play.trajectory.turns:
                    await asyncio.sleep(self._thinking_s)
                    play.sent()
                    await self._turns.send(turn)
                    self._audience.took_turn()
                if play.trajectory.halt_at is not None:
                    await asyncio.sleep(LAST_WORD_S)
        except Halted as halted:
            play.halted(halted)
        play.done = True
        self._audience.ended(play)

    async def coder_and_verifier(self, play: Play) -> None:
        """A coder that patches the same line again and again, and a verifier whose tests fail all the same."""
        try:
            async with self._halts.guard(play.run_id):
                await self._turns.run_started(run_id=play.run_id, workflow="demo", graph=GRAPH)
                for attempt in range(ATTEMPTS_MAX):
                    await self._attempt(play, attempt)
                await asyncio.sleep(LAST_WORD_S)
        except Halted as halted:
            play.halted(halted)
        play.done = True
        self._audience.ended(play)

    async def _attempt(self, play: Play, attempt: int) -> None:
        patch = PATCHES[attempt % len(PATCHES)]
        await self._think()
        play.sent()
        await self._turns.turn(run_id=play.run_id, node="coder", artifact={"sort.py": patch})
        self._audience.took_turn()
        await self._think()
        play.sent()
        report = {"failed": FAILING, "passed": 7, "total": 9}
        await self._turns.send({"run_id": play.run_id, "node": "verifier", "from": "coder", "tests": report})
        self._audience.took_turn()
        self._audience.said(f"coder, attempt {attempt + 1}: `{patch}`; verifier: {len(FAILING)} of 9 tests fail")

    async def _think(self) -> None:
        await asyncio.sleep(LOOP_THINKING * self._thinking_s)
