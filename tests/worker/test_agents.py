"""The Faust agents of a worker: their names, what they process, and what happens when one fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from benchmarks.stock_path import StockWorker
from streamproc.fleet.issuing import send as send_command
from streamproc.fleet.state import new_command
from streamproc.policy import load_policy
from streamproc.worker.composition import Worker
from streamproc.worker.limits import LOOP_STUCK_SESSIONS
from streamproc.worker.readiness import wait_until_ready
from streamproc.worker.slices import Slice
from streamproc.worker.watchdog import Watchdog
from tests.waiting import until
from tests.worker.running import environment_of, expected_ids, gather_controls, log_of_loops
from tests.worker.test_spend import spent, started, with_policy

ROOT = Path(__file__).parents[2]
AGENTS = ["watch_turns", "book_spend", "follow_commands"]
TABLES = ["runs", "accounts"]

# A processor that fails once, in the middle of a slice, after it has changed the state of a run.
FAILS_ONCE = """
from streamproc.worker import app
from streamproc.worker.turn_processor import TurnProcessor
app.RETRY_FIRST_S = 0.01
honest, failed = TurnProcessor.accept, []
def accept(self, runs, timed, **how):
    records = list(timed)
    if not failed and any(record.offset == 5 for record in records):
        failed.append(True)
        honest(self, runs, records[: len(records) // 2 + 1], **how)
        raise RuntimeError("a bug in the processor")
    return honest(self, runs, records, **how)
TurnProcessor.accept = accept
"""


class Pipelines:
    """Pipelines that note what they accept, or fail."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.accepted: list[Any] = []
        self._problem = problem

    def accept(self, partition: int, records: Sequence[Any]) -> int:
        if self._problem is not None:
            raise self._problem
        self.accepted += [(partition, record) for record in records]
        return len(records)


async def test_a_slice_is_processed_once() -> None:
    pipelines, offered = Pipelines(), Slice(TP("turns", 3), ["a", "b"], lambda: True)
    offered.apply_to(pipelines)
    offered.apply_to(pipelines)
    assert pipelines.accepted == [(3, "a"), (3, "b")]
    assert await offered.answer == 2


async def test_a_slice_that_was_withdrawn_is_not_processed() -> None:
    pipelines, offered = Pipelines(), Slice(TP("turns", 0), ["a"], lambda: True)
    offered.withdraw()
    offered.apply_to(pipelines)
    assert pipelines.accepted == []
    assert await offered.answer == 0


async def test_a_slice_of_an_earlier_generation_is_not_processed() -> None:
    pipelines, offered = Pipelines(), Slice(TP("turns", 0), ["a"], lambda: False)
    offered.apply_to(pipelines)
    assert pipelines.accepted == []
    assert await offered.answer == 0


async def test_the_consumer_and_the_agent_both_get_the_error_of_a_slice() -> None:
    offered = Slice(TP("turns", 0), ["a"], lambda: True)
    with pytest.raises(ZeroDivisionError):
        offered.apply_to(Pipelines(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        await offered.answer


async def test_a_running_worker_has_its_agents_and_tables_by_name(settings, topics, tmp_path, path) -> None:
    """In this process, so that its Faust app can be looked at."""
    policy = load_policy(with_policy(settings, tmp_path).policy)
    kind = StockWorker if path == "stock" else Worker
    worker, stop = kind(settings, policy, await wait_until_ready(settings, 10)), asyncio.Event()
    with Watchdog(LOOP_STUCK_SESSIONS * settings.session_timeout_s) as watchdog:
        running = asyncio.ensure_future(worker.run(stop, watchdog))
        try:
            await topics.send([started("r", tenant="acme", user="ann"), spent("r", 0, 80)])
            await send_command(settings, new_command(worker.fleet_commands.fleet, "PAUSE", "fleet", "ann", "a test"))
            agents = worker.app.agents
            await until(
                lambda: worker.accounts.records and worker.fleet_commands.fleet.status == "PAUSE", 60, "all agents"
            )
            assert path == "stock" or processed(agents) == set(AGENTS)
            assert list(agents) == AGENTS
            assert list(worker.app.tables) == TABLES
            assert all(agent.started and len(agent._actors) == 1 for agent in agents.values())
        finally:
            stop.set()
            await running
    assert worker.processor.counts.records == 2


def processed(agents: Any) -> set[str]:
    """The agents whose streams have passed something on. (The stock agents iterate over clones of theirs.)"""
    return {name for name, agent in agents.items() if any(actor.stream.events_total for actor in agent._actors)}


async def test_a_worker_logs_its_agents_and_tables_when_it_starts(settings, start_worker, path) -> None:
    worker = start_worker(settings, path)
    await worker.ready()
    assert worker.text.count("agents=watch_turns,book_spend,follow_commands tables=runs,accounts") == 1
    assert worker.end() == 0


def test_the_example_lists_agents_and_tables(settings) -> None:
    done = subprocess.run(
        [sys.executable, "examples/worker_agents.py"],
        cwd=ROOT, env=os.environ | environment_of(settings), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    names = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert names == [*(f"agent {name}" for name in AGENTS), *(f"table {name}" for name in TABLES)]


@pytest.mark.long
async def test_an_agent_that_fails_ends_the_run_and_no_record_is_skipped(settings, topics, start_worker, path) -> None:
    """Faust alone would restart the agent with the next slice."""
    records = log_of_loops(40)
    await topics.send(records)
    worker = start_worker(settings, path, before=FAILS_ONCE)
    await gather_controls(topics, expected_ids(records))
    await topics.done()
    assert worker.text.count("starts brokers=") == 2
    assert "a bug in the processor" in worker.text
    assert {control["id"] for control in await topics.controls()} == expected_ids(records)
    assert worker.end() == 0
