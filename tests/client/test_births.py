"""Births of a session on a real Redis: exact, however many processes ask at once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from streamproc.client.admission import BlockingAdmission
from streamproc.client.guard import Guard, GuardRegistry
from streamproc.errors import Halted, InvalidPolicy, SpawnRefused, Unavailable
from streamproc.fleet.command_events import state_event
from streamproc.fleet.state import Fleet, new_command
from streamproc.policy import load_policy
from streamproc.settings import load_settings
from tests.client.money import connect, open_admission
from tests.client.spawner import LIMITS
from tests.waiting import until

PROCESSES = 60
ROOT = Path(__file__).parents[2]
FIELDS: Any = {"session": "s", "parent": "root"}


async def refused(admission: Any, run_id: str, **fields: Any) -> str:
    """Ask for a birth; return the limit that refuses it, or nothing."""
    try:
        async with admission.birth(run_id, **{**FIELDS, **fields}):
            return ""
    except SpawnRefused as problem:
        return problem.budget


@pytest.mark.long
@pytest.mark.redis
async def test_sixty_spawners_in_as_many_processes_are_granted_exactly_the_limit(
    redis_url: str, topic_prefix: str
) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.client.spawner", redis_url, topic_prefix, str(number),
            cwd=ROOT, stdin=PIPE, stdout=PIPE,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    try:
        for process in processes:
            assert await process.stdout.readline() == b"ready\n"
        for process in processes:
            process.stdin.write(b"go\n")
        granted = [int(await process.stdout.readline()) for process in processes]
        assert sum(map(bool, granted)) > 1
        async with connect(redis_url) as redis:
            stem = f"{topic_prefix}:admission:{{@}}:births:s"
            alive, born = await redis.zcard(f"{stem}:alive"), await redis.hlen(f"{stem}:runs")
        assert born == sum(granted) + 1 <= LIMITS["maxSessionRuns"]  # with the root
        assert alive + 1 <= LIMITS["maxConcurrentRuns"]
        assert born == LIMITS["maxSessionRuns"] or alive + 1 == LIMITS["maxConcurrentRuns"]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


LIMITED = [
    ("maxSessionRuns", 3, {}, 2), ("maxDepth", 1, {"parent": "c0"}, 1), ("maxSpawnsPerMinute", 4, {}, 4),
    ("maxSameChildren", 2, {"prompt": "Do it."}, 2),
]  # fmt: skip


@pytest.mark.redis
@pytest.mark.parametrize(("budget", "limit", "fields", "granted"), LIMITED, ids=[row[0] for row in LIMITED])
async def test_each_limit_refuses_and_the_same_run_counts_once(
    redis_url: str, topic_prefix: str, budget: str, limit: int, fields: dict[str, str], granted: int
) -> None:
    births = load_policy({"budgets": {budget: limit}}).births()
    async with open_admission(redis_url, topic_prefix, births=births) as admission:
        if "parent" in fields:
            assert not await refused(admission, "c0")
            granted -= 1
        for n in range(1, granted + 1):
            for _ in range(2):
                assert not await refused(admission, f"c{n}", **fields)
        assert await refused(admission, "over", **fields) == budget
        assert not await refused(admission, "other", session="another")
        assert not await refused(admission, "theirs", tenant="acme")


@pytest.mark.redis
async def test_a_run_that_has_ended_or_whose_process_is_gone_makes_room(redis_url: str, topic_prefix: str) -> None:
    births = {"maxConcurrentRuns": 2}
    async with open_admission(redis_url, topic_prefix, births=births, ttl_s=0.3) as admission:
        async with admission.birth("c0", **FIELDS) as birth:
            assert await refused(admission, "c1") == "maxConcurrentRuns"
            await until(lambda: birth.extend_at > 0)
        assert not await refused(admission, "c1")
        lost = admission.birth("c2", **FIELDS)
        await lost.__aenter__()
        admission._births.discard(lost)  # as if its process had died

        async def room() -> bool:
            return not await refused(admission, "c3")

        await until(room)


@pytest.mark.redis
async def test_a_run_that_begins_again_needs_room_and_counts_once(redis_url: str, topic_prefix: str) -> None:
    births = {"maxConcurrentRuns": 2, "maxSessionRuns": 3}
    async with open_admission(redis_url, topic_prefix, births=births) as admission:
        assert not await refused(admission, "c0")
        async with admission.birth("c1", **FIELDS):
            assert await refused(admission, "c0") == "maxConcurrentRuns"
            assert not await refused(admission, "c1")
        assert not await refused(admission, "c0")


@pytest.mark.redis
async def test_what_is_kept_of_a_refused_birth_expires(redis_url: str, topic_prefix: str) -> None:
    async with open_admission(redis_url, topic_prefix, births={"maxSessionRuns": 1}) as admission:
        assert await refused(admission, "c0") == "maxSessionRuns"
    async with connect(redis_url) as redis:
        kept = [key async for key in redis.scan_iter(f"{topic_prefix}:admission:*")]
        assert kept
        assert [await redis.pttl(key) > 0 for key in kept] == [True] * len(kept)


@pytest.mark.redis
def test_blocking_code_asks_in_the_same_way(redis_url: str, topic_prefix: str) -> None:
    settings = load_settings(redis=redis_url, topic_prefix=topic_prefix)
    with BlockingAdmission(settings=settings, births={"maxSessionRuns": 2}) as admission:
        payer = admission.payer("root", session="s")
        with payer.birth("c0", prompt="Do it."):
            pass
        why = r"session s may not start run c1: it would be 3 of 2 \(maxSessionRuns\)"
        with pytest.raises(SpawnRefused, match=why), payer.birth("c1"):
            pass


async def test_without_redis_births_are_closed_or_open() -> None:
    away = "redis://127.0.0.1:1/0"
    async with open_admission(away, "p", on_unavailable="open", births={"maxSessionRuns": 1}) as admission:
        assert not await refused(admission, "c0")
        assert admission.unasked == 1
    with pytest.raises(Unavailable):
        async with open_admission(away, "p"):
            pass


async def test_a_guard_of_a_halted_run_or_a_killed_session_starts_no_child_and_asks_nobody() -> None:
    command = new_command(Fleet(), "STOP", "session:s", "ada", "enough")
    halted = Halted("root", state_event(command, "root"))
    payer = open_admission("redis://127.0.0.1:1/0", "p").payer("root", session="s")
    guard = Guard("root", GuardRegistry(), lambda _run_id: halted, payer)
    with pytest.raises(Halted, match="enough"):
        async with guard.birth("c0"):
            raise AssertionError("it was started")


def test_mistakes_in_limits_are_named() -> None:
    with pytest.raises(InvalidPolicy, match="maxSteps"):
        open_admission("redis://x", "p", births={"maxSteps": 3})
