"""The course of the demo: start broker, worker, publisher and listener; run the agents; collect the outcome."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.client import HaltListener, TurnPublisher
from streamproc.demo.agents import ATTEMPTS_MAX, LOOP_RUN, AgentRunner, DemoRun
from streamproc.demo.broker import embedded_broker
from streamproc.demo.trajectories import Trajectory, load_trajectories
from streamproc.demo.worker import worker_process
from streamproc.kafka import topics
from streamproc.settings import Settings

if TYPE_CHECKING:
    from streamproc.demo.display import LineDisplay, ScreenDisplay

START_SPREAD_S: Final = 2.0  # the agents do not all start in the same instant


class DemoOutcome(NamedTuple):
    """The runs, the number of turns that did not reach the broker, and the duration."""

    runs: Sequence[DemoRun]
    dropped: int
    seconds: float

    def surprises(self) -> list[str]:
        """Return the deviations from what is expected; none if all is well."""
        found = []
        for run in self.runs:
            expected = run.trajectory.halt_at if run.trajectory is not None else None
            if run.run_id == LOOP_RUN and run.halt is None:
                found.append(f"the guard did not stop {LOOP_RUN} within {ATTEMPTS_MAX} attempts")
            elif run.trajectory is not None and run.halted_at != expected:
                found.append(f"{run.run_id}: {_halt(run.halted_at)} in the demo, {_halt(expected)} in a scan")
        if self.dropped:
            found.append(f"{self.dropped} {'turn' if self.dropped == 1 else 'turns'} did not reach the broker")
        return found


def _halt(turn: int | None) -> str:
    return "not halted" if turn is None else f"halted at turn {turn}"


def run_demo(
    display: LineDisplay | ScreenDisplay, pause_s: float, show: Callable[[DemoOutcome, str], None] | None = None
) -> DemoOutcome | None:
    """Run the demo. Each agent waits `pause_s` before a turn. Raises `Unavailable`.

    With `show`, a page shows the fleet, and the demo goes on until Ctrl-C: `show` gets the outcome of the recorded
    agents and the address of the page as soon as they have ended. None: the page was closed before that.
    """
    began_s = time.monotonic()
    now_ms = int(time.time() * 1000)
    trajectories = load_trajectories(now_ms)
    settings = Settings.model_construct()  # the defaults, so that the demo never touches a real Kafka
    with embedded_broker([spec.name for spec in topics.specs(settings)]) as address:
        display.message(f"embedded broker started on {address}; it keeps everything in memory")
        settings = settings.model_copy(update={"brokers": address})
        return asyncio.run(_run(settings, trajectories, display, pause_s, began_s, show))


async def _run(
    settings: Settings,
    trajectories: list[Trajectory],
    display: LineDisplay | ScreenDisplay,
    pause_s: float,
    began_s: float,
    show: Callable[[DemoOutcome, str], None] | None,
) -> DemoOutcome | None:
    loop = DemoRun(LOOP_RUN, 2 * ATTEMPTS_MAX)
    recorded = [DemoRun(one.run_id, len(one.turns), one) for one in trajectories]
    runs = [loop, *recorded]
    publisher = TurnPublisher(settings=settings, include_content=show is not None)  # the page shows calls and answers
    with tempfile.TemporaryDirectory(prefix="streamproc-demo-") as directory:
        display.message("starting the worker")
        async with worker_process(settings, Path(directory)):
            display.message(f"worker ready; starting {len(recorded)} recorded agents and a scripted loop under guards")
            async with HaltListener(settings=settings) as halts, publisher:
                runner = AgentRunner(publisher, halts, display, pause_s, live=show is not None)

                async def agents() -> DemoOutcome:
                    with display.show(runs):
                        async with asyncio.TaskGroup() as group:
                            group.create_task(runner.coder_and_verifier(loop))
                            for number, run in enumerate(recorded):
                                group.create_task(runner.trajectory(run, START_SPREAD_S * number / len(recorded)))
                    return DemoOutcome(runs, publisher.dropped, time.monotonic() - began_s)

                if show is None:
                    return await agents()
                return await _with_page(settings, agents, publisher, halts, display, show)


async def _with_page(
    settings: Settings,
    agents: Callable[[], Coroutine[Any, Any, DemoOutcome]],
    publisher: TurnPublisher,
    halts: HaltListener,
    display: LineDisplay | ScreenDisplay,
    show: Callable[[DemoOutcome, str], None],
) -> DemoOutcome | None:
    """Run the recorded agents, and then others, beside a page until it is closed."""
    from streamproc.demo.page import DemoPage, LastingAgents, open_browser

    page = DemoPage()
    found: list[DemoOutcome] = []

    async def recorded_and_others() -> None:
        await page.ready.wait()
        display.message(f"open {page.address}")
        open_browser(page.address)
        async with asyncio.TaskGroup() as group:
            group.create_task(LastingAgents(publisher, halts).run())
            found.append(await agents())
            show(found[0], page.address)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(recorded_and_others())
        await page.serve(settings)
        running.cancel()
    return found[0] if found else None
