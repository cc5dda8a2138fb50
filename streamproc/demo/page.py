"""The page on the demo's fleet, and agents that go on until it is closed: one that works, and one that gets stuck."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from itertools import count
from typing import TYPE_CHECKING, Final

from streamproc.errors import Halted
from streamproc.policy import load_policy
from streamproc.web.access import AccessOptions
from streamproc.web.process import PageOptions, serve_page

if TYPE_CHECKING:
    from streamproc.client import HaltListener, TurnPublisher
    from streamproc.settings import Settings

HOST: Final = "127.0.0.1"
PAUSE_S: Final = 1.0  # between two turns: slow enough to read along
REST_S: Final = 8.0  # after a run, before the next one of the same agent
JOB_TURNS: Final = 60  # of a run that is left to end by itself
WORK_TURNS: Final = 12  # of the other agent, before it begins to repeat itself
REPEATS_MAX: Final = 12
COST_USD: Final = "0.012"  # of a turn


class DemoPage:
    """Serves the page of one demo until Ctrl-C. `address` is the one to open: each login makes another."""

    def __init__(self) -> None:
        self.address = ""
        self.ready = asyncio.Event()

    async def serve(self, settings: Settings) -> None:
        """Serve the page until SIGINT or SIGTERM."""
        options = PageOptions(host=HOST, port=0, since_ms=0)  # no commands: see `LastingAgents`
        await serve_page(settings, load_policy(), options, AccessOptions(host=HOST), self._announce)

    def _announce(self, address: str) -> None:
        self.address = address
        self.ready.set()


def open_browser(address: str) -> None:
    """Open an address in the browser of this desktop; without one, do nothing: it is printed, too."""
    has_desktop = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if has_desktop and sys.stdout.isatty():
        webbrowser.open(address)


class LastingAgents:
    """Agents that take turns until the page is closed, each run under a guard. A detector halts one of them each time.

    The page of the demo is read-only: the embedded broker cannot say when a command was written, so every receiver
    refuses it.
    """

    def __init__(self, turns: TurnPublisher, halts: HaltListener) -> None:
        self._turns = turns
        self._halts = halts

    async def run(self) -> None:
        """Run the agents until this task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._runs("release-notes", "ada", JOB_TURNS, stuck=False))
            group.create_task(self._runs("migration", "bob", JOB_TURNS, stuck=False))
            group.create_task(self._runs("flaky-test", "ada", WORK_TURNS, stuck=True))

    async def _runs(self, workflow: str, user: str, turns: int, *, stuck: bool) -> None:
        for number in count(1):
            run_id = f"demo/{workflow}-{number}"
            try:
                async with self._halts.guard(run_id):
                    await self._turns.run_started(run_id=run_id, workflow=workflow, user=user)
                    for turn in range(turns + (REPEATS_MAX if stuck else 0)):
                        await asyncio.sleep(PAUSE_S)
                        await self._turn(run_id, min(turn, turns))
                    await self._turns.run_finished(run_id=run_id, status="done")
            except Halted:
                pass  # by a detector, or by a person on the page
            await asyncio.sleep(REST_S)

    async def _turn(self, run_id: str, step: int) -> None:
        """Read the next file; the same `step` is the same call with the same answer."""
        call = {"name": "read_file", "args": {"path": f"src/part_{step}.py"}, "result": f"def part_{step}(): ..."}
        usage = {"input_tokens": 3_000, "output_tokens": 200, "cost_usd": COST_USD}
        await self._turns.send({"run_id": run_id, "node": "coder", "tool_calls": [call], "usage": usage})
