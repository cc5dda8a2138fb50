"""A worker on a real Kafka, and an agent that uses the id of its halted run again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.model.controls import RunStatus
from streamproc.settings import Settings, load_settings
from tests.waiting import until
from tests.worker.running import Topics, environment_of

SECRET = load_settings(run_token="0123456789abcdef").run_token


async def again(turns: TurnPublisher, first: int) -> None:
    """End the run and start it again, as another tenant and with a larger budget."""
    await turns.run_finished(run_id="r1")
    await turns.run_started(run_id="r1", tenant="other", budgets={"maxSteps": 1_000})
    for step in range(first, first + 3):
        await turns.turn(run_id="r1", node="coder", output=f"step {step}")
    assert await turns.flush(30)


async def test_only_an_operator_lifts_the_halt_of_a_bound_run_whose_id_is_used_again(
    settings: Settings, topics: Topics, start_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start_worker(settings)
    await worker.ready()
    bound = settings.model_copy(update={"run_token": SECRET})
    async with (
        TurnPublisher(settings=bound) as turns,
        TurnPublisher(settings=settings) as stranger,
        HaltListener(settings=settings) as halts,
    ):
        await turns.run_started(run_id="r1", tenant="acme")
        for _ in range(3):
            await turns.turn(run_id="r1", node="coder", output="I will try again.")
        await until(lambda: halts.halted("r1"), 60, "the run to be halted")

        await again(turns, 0)
        await stranger.run_finished(run_id="r1")
        await stranger.flush(30)
        await topics.done()

        with pytest.raises(Halted, match="the same output 3 times"):
            async with halts.guard("r1"):
                pytest.fail("the guard let a halted run continue")
        assert await last_status(topics) == ("halted", "LOOP001", "acme", 6)

        for name, value in environment_of(settings).items():
            monkeypatch.setenv(name, value)
        resumed = await run_command("resume", "r1", "--by", "ada")
        assert resumed.exit_code == 0, resumed.output
        await until(lambda: not halts.halted("r1"), 60, "the run to be resumed")
        async with halts.guard("r1"):
            pass
    assert (await last_status(topics))[0] == "running"
    [refused] = await topics.read("dead-letter")
    assert refused.key == b"r1"
    assert b"run.finished" in refused.value
    assert dict(refused.headers)["field"] == b"token"


async def last_status(topics: Topics) -> tuple[str, str, str | None, int]:
    [*_, record] = [one for one in await topics.read("runs") if one.key == b"r1"]
    status = RunStatus.model_validate_json(record.value)
    return status.status, status.halt.code if status.halt else "", status.tenant, status.turns


async def run_command(*arguments: str) -> Any:
    """Run a command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, build(), list(arguments))
