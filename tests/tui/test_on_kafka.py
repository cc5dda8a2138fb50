"""The terminal screen on a real Kafka: a real worker decides, and an agent in another process is cancelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from deploy.local.kafka import Broker
from streamproc.client import TurnPublisher
from streamproc.kafka import topics as kafka_topics
from streamproc.read_model.command_progress import body_of
from streamproc.read_model.rows import DecisionFilter
from streamproc.settings import Settings
from streamproc.tui.app import FleetApp, fleet_app
from streamproc.tui.command_dialog import CommandDialog
from streamproc.tui.run_list import RunList
from streamproc.tui.run_screen import RunScreen
from streamproc.tui.run_sections import todo
from tests.cli.conftest import ROOT
from tests.tui.test_fleet_screen import screen_lines
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import WorkerProcess, environment_of

KEY = "ops:0123456789abcdef0123456789abcdef"
AGENT = """
import asyncio, itertools
from streamproc import Halted, HaltListener, TurnPublisher

async def work():
    async with TurnPublisher() as turns, HaltListener() as halts:
        await turns.run_started(run_id="victim", workflow="nightly", user="ada")
        try:
            async with halts.guard("victim"):
                for number in itertools.count():
                    await turns.turn(run_id="victim", node="coder", output=f"Read chapter {number} of the manual.")
                    await asyncio.sleep(0.1)
        except Halted as halted:
            print(f"cancelled: {halted}", flush=True)

asyncio.run(work())
"""


def start_agent(settings: Settings) -> subprocess.Popen[str]:
    """Start the agent with its guard, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", AGENT],
        env=os.environ | environment_of(settings) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def news(app: FleetApp) -> str:
    if isinstance(app.screen, CommandDialog):
        return ""
    return str(app.screen.query_one("#news", Static).render())


async def publish_stuck(settings: Settings, run_id: str, turns: int = 4) -> None:
    """A run that makes the same call with the same answer."""
    call = {"name": "Bash", "args": {"command": "git status"}, "result": "fatal: not a git repository"}
    async with TurnPublisher(settings=settings, include_content=True) as publisher:
        await publisher.run_started(run_id=run_id, workflow="nightly", budgets={"maxSteps": 40})
        for _ in range(turns):
            await publisher.turn(run_id=run_id, node="coder", tool_calls=[call])


async def issued(pilot: Pilot[None], run_id: str, key: str, reason: str) -> None:
    """Choose a run and give a command about it."""
    app: FleetApp = pilot.app  # type: ignore[assignment]
    await until(lambda: run_id in app.screen.query_one(RunList).shown_ids, 60, f"{run_id} in the list")
    app.screen.query_one(RunList).choose(run_id)
    await pilot.press(key)
    await until(lambda: isinstance(app.screen, CommandDialog))
    app.screen.query_one("#reason").value = reason  # type: ignore[attr-defined]
    app.screen.query_one("#send").press()  # type: ignore[attr-defined]
    await until(lambda: not isinstance(app.screen, CommandDialog))


@pytest.mark.long
async def test_a_stuck_agent_is_understood_and_another_is_halted_by_a_key(
    brokers: str, topic_prefix: str, start_worker: Callable[[Settings], WorkerProcess]
) -> None:
    settings = settings_for(brokers, topic_prefix, command_key=KEY, partitions=2)
    await kafka_topics.apply(settings)
    worker = start_worker(settings)
    await worker.ready()
    agent = start_agent(settings)
    try:
        async with fleet_app(settings, since_ms=0, by="ada") as app, app.run_test(size=(140, 50)) as pilot:
            await until(lambda: app.feed.caught_up, 60, "the reader to catch up")
            await publish_stuck(settings, "stuck")

            # It appears among the halted ones, and its screen says why.
            await until(lambda: "stuck" in app.screen.query_one(RunList).shown_ids, 60)
            await until(lambda: (run := app.model.run("stuck")) is not None and run.group == "halted", 60)
            await until(lambda: any("HALTED 1" in line for line in screen_lines(app)), 60)
            app.screen.query_one(RunList).choose("stuck")
            await pilot.press("enter")
            await until(lambda: isinstance(app.screen, RunScreen) and app.screen.report is not None, 60)
            advice = next(todo(body_of(app.model.decisions(DecisionFilter(run_id="stuck", severity="halt"))[0])))
            for words in (f"→ {advice.plain}", "maxSteps", "fatal: not a git repository", "the same", "Last turns"):
                await until(lambda words=words: words in "\n".join(screen_lines(app)), 30, words)

            # Another run is halted from here: a guard in another process cancels its agent.
            await pilot.press("escape")
            await issued(pilot, "victim", "h", "wrong branch")
            output, _ = await asyncio.to_thread(agent.communicate, timeout=60)
            assert "cancelled: " in output
            assert "wrong branch" in output
            assert "ada" in output
            assert agent.returncode == 0
            await until(lambda: news(app) == "halt run victim: done: the run is halted: stopped 1 of 1", 60)

            # And it is resumed with a grant, which a worker's decision confirms.
            await issued(pilot, "victim", "r", "the branch was right")
            await until(lambda: news(app).startswith("resume run victim: done: Resumed by ada"), 60, news(app))

            # The fleet is paused, and cleared again.
            for key, verb in (("P", "pause"), ("C", "clear")):
                await pilot.press(key)
                await until(lambda: isinstance(app.screen, CommandDialog))
                app.screen.query_one("#reason").value = "a drill"  # type: ignore[attr-defined]
                app.screen.query_one("#send").press()  # type: ignore[attr-defined]
                await until(lambda verb=verb: news(app).startswith(f"{verb} the fleet: done"), 60)
            assert app.model.counts(app.now_ms()).fleet_status == "CLEAR"
    finally:
        agent.kill()
        agent.communicate()


@pytest.mark.long
async def test_the_screen_goes_on_by_itself_when_the_broker_is_back(
    own_broker: Broker, topic_prefix: str, start_worker: Callable[[Settings], WorkerProcess]
) -> None:
    port = own_broker.start().port
    settings = settings_for(f"127.0.0.1:{port}", topic_prefix, command_key=KEY, partitions=1)
    await kafka_topics.apply(settings)
    worker = start_worker(settings)
    await worker.ready()
    await publish_stuck(settings, "before")
    async with fleet_app(settings, since_ms=0, by="ada") as app, app.run_test(size=(140, 50)) as pilot:
        await until(lambda: "before" in app.screen.query_one(RunList).shown_ids, 60)
        lost = app.screen.query_one("#lost", Static)
        assert not lost.display

        own_broker.kill()
        await until(lambda: lost.display, 60, "the bar of a lost connection")
        assert "Not connected since" in str(lost.render())
        assert "before" in app.screen.query_one(RunList).shown_ids
        await pilot.press("C")
        await until(lambda: app._notifications)
        assert "not up to date" in next(iter(app._notifications)).message

        own_broker.start(port)
        await until(lambda: not lost.display, 120, "the connection to be back")
        await publish_stuck(settings, "after")
        await until(lambda: "after" in app.screen.query_one(RunList).shown_ids, 120)
