"""A rule of a real worker ends a task: guards of the task and of its agent are cancelled, and the run goes on."""

from __future__ import annotations

import asyncio

import pytest

from streamproc import BlockingHaltListener, HaltListener, TaskEnded, TurnPublisher
from streamproc.kafka import topics as kafka_topics
from streamproc.replay.published import statuses
from streamproc.settings import Settings
from tests.core.board.test_ends import DECIDED, ENDS
from tests.waiting import until
from tests.worker.conftest import settings_for

pytestmark = pytest.mark.kafka


@pytest.fixture
async def settings(brokers: str, topic_prefix: str) -> Settings:
    settings = settings_for(brokers, topic_prefix, policy="tickets")
    await kafka_topics.apply(settings)
    return settings


async def publish(settings: Settings, raws: list[dict[str, object]]) -> None:
    async with TurnPublisher(settings=settings) as turns:
        for raw in raws:
            await turns.event(str(raw.get("type", "turn")), run_id="r", **{k: v for k, v in raw.items() if k != "type"})


async def guarded(halts: HaltListener, **of: str) -> str:
    async with halts.guard("r", **of):
        await asyncio.Event().wait()
    return ""


async def test_guards_of_the_task_and_its_agent_are_cancelled_and_the_run_goes_on(settings, start_worker) -> None:
    worker = start_worker(settings)
    await worker.ready()
    async with HaltListener(settings=settings) as halts:
        mine = [asyncio.create_task(guarded(halts, task="T1")), asyncio.create_task(guarded(halts, agent="ada"))]
        others = [
            asyncio.create_task(guarded(halts, **of))
            for of in ({}, {"task": "T2"}, {"agent": "bob"})  # the run, another task, another agent
        ]
        await until(lambda: len(halts.guards) > 0)
        await publish(settings, ENDS["blocked"])

        for ended in await asyncio.wait_for(asyncio.gather(*mine, return_exceptions=True), 30):
            assert isinstance(ended, TaskEnded)
            assert (ended.task, ended.control.code, ended.control.type) == ("T1", "TASK001", "task.ended")
        assert not any(task.done() for task in others)
        status = (await statuses(settings))["r"]
        assert (status.status, [end.task_id for end in status.ended_tasks]) == ("running", ["T1"])

    with BlockingHaltListener(settings=settings) as later:  # begins after the end: the status tells it
        with pytest.raises(TaskEnded), later.guard("r", task="T1"):
            pass
        with later.guard("r"), later.guard("r", task="T2"):
            later.check("r")
        with later.guard("r"), pytest.raises(TaskEnded):
            later.check("r", task="T1")
        await publish(settings, [DECIDED])

        def enters() -> bool:
            try:
                with later.guard("r", task="T1"):
                    return True
            except TaskEnded:
                return False

        await until(lambda: asyncio.to_thread(enters), what="the status without the task")
    assert [end.task_id for end in (await statuses(settings))["r"].ended_tasks] == []
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
