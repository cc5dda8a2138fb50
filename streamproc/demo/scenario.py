"""The demo from beginning to end: broker, worker, publisher, listener; the agents; what it came to."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.client import HaltListener, TurnPublisher
from streamproc.demo.agents import ATTEMPTS_MAX, LOOP_RUN, Play, Stage
from streamproc.demo.broker import embedded_broker
from streamproc.demo.trajectories import Trajectory, load_trajectories
from streamproc.demo.worker import worker_process
from streamproc.kafka import topics
from streamproc.settings import Settings

if TYPE_CHECKING:
    from streamproc.demo.display import Lines, Screen

STARTS_WITHIN_S: Final = 2.0  # the agents do not all begin in the same instant


class DemoOutcome(NamedTuple):
    """What was played, how many turns the broker did not take, and how long it all took."""

    plays: Sequence[Play]
    dropped: int
    seconds: float

    def surprises(self) -> list[str]:
        """What should not have been: nothing, where all is well."""
        found = []
        for play in self.plays:
            expected = play.trajectory.halt_at if play.trajectory is not None else None
            if play.run_id == LOOP_RUN and play.halt is None:
                found.append(f"the guard did not stop {LOOP_RUN} within {ATTEMPTS_MAX} attempts")
            elif play.trajectory is not None and play.halted_at != expected:
                found.append(f"{play.run_id} was halted at turn {play.halted_at}, and by a scan at turn {expected}")
        if self.dropped:
            found.append(f"{self.dropped} turns did not reach the broker")
        return found


def run_demo(board: Lines | Screen, thinking_s: float) -> DemoOutcome:
    """Play everything. `thinking_s` is how long each agent waits before a turn. Raises `Unavailable`."""
    began_s = time.monotonic()
    now_ms = int(time.time() * 1000)
    trajectories = load_trajectories(now_ms)
    settings = Settings.model_construct()  # the defaults: whatever Kafka the environment names is left alone
    with embedded_broker([spec.name for spec in topics.specs(settings)]) as address:
        board.said(f"an embedded broker speaks Kafka's protocol on {address} (in memory, gone when this ends)")
        settings = settings.model_copy(update={"brokers": address})
        return asyncio.run(_play(settings, trajectories, board, thinking_s, began_s))


async def _play(
    settings: Settings, trajectories: list[Trajectory], board: Lines | Screen, thinking_s: float, began_s: float
) -> DemoOutcome:
    loop = Play(LOOP_RUN, 2 * ATTEMPTS_MAX)
    recorded = [Play(one.run_id, len(one.turns), one) for one in trajectories]
    plays = [loop, *recorded]
    publisher = TurnPublisher(settings=settings)
    with tempfile.TemporaryDirectory(prefix="streamproc-demo-") as directory:
        board.said("the worker starts in a process of its own")
        async with worker_process(settings, Path(directory)):
            board.said(f"it is ready; {len(recorded)} recorded agents and a scripted loop begin, each under a guard")
            async with HaltListener(settings=settings) as halts, publisher:
                stage = Stage(publisher, halts, board, thinking_s)
                with board.show(plays):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(stage.coder_and_verifier(loop))
                        for number, play in enumerate(recorded):
                            group.create_task(stage.trajectory(play, STARTS_WITHIN_S * number / len(recorded)))
    return DemoOutcome(plays, publisher.dropped, time.monotonic() - began_s)
