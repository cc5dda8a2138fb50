"""Trees of agents on a real Kafka: births above a limit are halted, and a stop reaches every run of a session."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamproc.fleet.issuing import issue_command
from streamproc.policy import load_policy
from streamproc.replay.log import LogReplay
from streamproc.settings import Settings
from tests.waiting import until
from tests.worker.running import Topics, environment_of, turn

CHILDREN = 40


def born(run_id: str, session: str, parent: str = "", **fields: Any) -> tuple[bytes, bytes]:
    return turn(run_id, type="run.started", session_id=session, parent_run_id=parent, **fields)


def tree(session: str, count: int) -> list[tuple[bytes, bytes]]:
    """A root, and runs that have three children each."""
    runs = [born(f"{session}-root", session)]
    return runs + [
        born(f"{session}-{n}", session, f"{session}-{(n - 1) // 3}" if n else f"{session}-root") for n in range(count)
    ]


async def halts(topics: Topics) -> dict[str, str]:
    """The code of the first halt of each run."""
    found: dict[str, str] = {}
    for one in await topics.controls():
        if one["severity"] == "halt" and one["run_id"] != "*":
            found.setdefault(one["run_id"], one["code"])
    return found


async def command(settings: Settings, *words: str) -> dict[str, Any]:
    """Run a command of streamproc in a process of its own; what it prints as JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "streamproc",
        *words,
        "--json",
        env=environment_of(settings),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    answer: dict[str, Any] = orjson.loads(printed)
    return answer


async def test_births_above_the_limit_are_halted_in_every_partition(
    settings: Settings, topics: Topics, start_worker: Any, path: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("budgets: { maxSessionRuns: 21 }\n")
    worker = start_worker(settings.model_copy(update={"policy": str(policy)}), path)
    await worker.ready()
    await topics.send(tree("s", CHILDREN) + tree("other", 9))

    async def all_told() -> bool:
        return len(await halts(topics)) >= 20

    await until(all_told, 60, "the newborns to be halted", every_s=0.2)
    await topics.done()
    found = await halts(topics)
    over = {run: code for run, code in found.items() if code == "TREE001"}
    assert not any(run.startswith("other") for run in found)
    assert len(over) >= CHILDREN + 1 - 21
    # The log shows why: a replay of each partition decides the same.
    log = LogReplay(load_policy(str(policy)).engine(), event_bytes_max=settings.event_bytes_max)
    replayed = {decision.id for decision in log.decide(await topics.read("turns"))}
    assert replayed == {one["id"] for one in await topics.controls()}


@pytest.mark.long
async def test_a_killed_session_stops_with_all_its_runs_and_with_those_that_are_born_later(
    settings: Settings, topics: Topics, start_worker: Any, path: str
) -> None:
    workers = [start_worker(settings, path) for _ in range(2)]
    for worker in workers:
        await worker.ready()
    await topics.send(tree("s", CHILDREN) + tree("other", 9))
    await topics.done()

    answer = await command(
        settings, "kill", "--session", "s", "--by", "ada", "--why", "it never ends", "--wait", "180s"
    )
    assert (answer["state"], answer["expected"], answer["stopped"]) == ("obeyed", CHILDREN + 1, CHILDREN + 1)
    wanted = {"s-root", *(f"s-{n}" for n in range(CHILDREN))}
    assert set(await halts(topics)) == wanted

    await topics.send([born("s-late", "s", "s-3"), turn("s-late", output="I begin"), turn("s-3", output="I go on")])
    wanted.add("s-late")

    async def all_stopped() -> bool:
        return set(await halts(topics)) == wanted

    await until(all_stopped, 60, "the late run to be halted", every_s=0.2)
    await issue_command(settings, "CLEAR", "session:s", "ada", "repaired")
    await until(lambda: all(worker.said("session s is cleared") for worker in workers))
    await topics.send([born("s-new", "s")])
    await topics.done()
    assert set(await halts(topics)) == wanted
