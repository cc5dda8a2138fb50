"""Commands reach guards over a real Kafka: the effect of each command on a guard's body."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streamproc.client import BlockingHaltListener, Guard, HaltListener, TurnPublisher
from streamproc.errors import Halted, InvalidSettings
from streamproc.fleet.issuing import issue_command
from streamproc.fleet.signing import command_signer
from streamproc.kafka import topics
from streamproc.model.fleet_command import encode_command
from streamproc.model.wire import OperatorResume, OperatorStop
from streamproc.settings import Settings, load_settings
from tests.client.records import Worker, guarded, halt_event, resume_event, turns_on
from tests.waiting import until

KEY = "ops:0123456789abcdef"


async def test_a_stop_ends_all_work_until_it_is_cleared(settings: Settings) -> None:
    async with HaltListener(settings=settings) as halts:
        mine, other = await guarded(halts, "r1"), await guarded(halts, "r2")

        command, before, _ = await issue_command(settings, "STOP", "fleet", "ada", "the deployment is broken")

        for task, run_id in ((mine, "r1"), (other, "r2")):
            with pytest.raises(Halted) as halted:
                await task
            control = halted.value.control
            assert (halted.value.run_id, control.run_id, control.code) == (run_id, run_id, "FLEET001")
            assert (control.halt_reason, control.terminal_status) == ("user_stop", "stopped")
            assert "ada: the deployment is broken" in control.message
        with pytest.raises(Halted):
            async with halts.guard("r3"):
                pytest.fail("work started in a stopped fleet")
        with pytest.raises(Halted):
            halts.check("r3")
        assert (halts.fleet.status, halts.fleet.command, before) == ("STOP", command, None)

        await issue_command(settings, "CLEAR", "fleet", "ada", "fixed")
        await until(lambda: halts.fleet.status == "CLEAR")
        (await guarded(halts, "r1")).cancel()


async def test_standing_commands_are_known_at_the_start(settings: Settings) -> None:
    for status in ("STOP", "CLEAR", "PAUSE"):
        await issue_command(settings, status, "fleet", "ada", status.lower())
    await issue_command(settings, "STOP", "user:eve", "ada", "abuse")

    async with HaltListener(settings=settings) as halts:
        assert halts.fleet.paused
        assert halts.fleet.command.why == "pause"
        with pytest.raises(Halted):
            await halts.guard("r1", user="eve").ready()


async def steps(guard: Guard, taken: list[str], allowed: asyncio.Semaphore) -> None:
    """An agent that calls `ready` before every step."""
    async with guard:
        while True:
            await guard.ready()
            taken.append("step")
            await allowed.acquire()


async def test_a_pause_lets_steps_finish_and_starts_none(settings: Settings) -> None:
    async with HaltListener(settings=settings) as halts:
        taken: list[str] = []
        allowed = asyncio.Semaphore(0)
        running = asyncio.create_task(steps(halts.guard("r1"), taken, allowed))
        await until(lambda: taken)

        await issue_command(settings, "PAUSE", "fleet", "ada", "maintenance")
        await until(lambda: halts.fleet.paused)
        assert not running.done()
        allowed.release()  # it finishes its step and starts no other
        taken_by_second: list[str] = []
        starting = asyncio.create_task(steps(halts.guard("r2"), taken_by_second, allowed))
        await until(lambda: len(halts.guards) == 2, what="both to wait")
        assert (taken, taken_by_second) == (["step"], [])

        await issue_command(settings, "CLEAR", "fleet", "ada", "done")
        await until(lambda: len(taken) == 2 and taken_by_second)

        await issue_command(settings, "STOP", "fleet", "ada", "enough")
        for task in (running, starting):
            with pytest.raises(Halted):
                await task


async def test_a_waiting_guard_is_halted_by_a_stop_and_by_a_decision(settings: Settings, worker: Worker) -> None:
    await issue_command(settings, "PAUSE", "fleet", "ada", "maintenance")
    async with HaltListener(settings=settings) as halts:
        waiting = [asyncio.create_task(halts.guard(run_id).ready()) for run_id in ("r1", "r2")]
        await until(lambda: len(halts.guards) == 2)

        await worker.control(halt_event("r1"))
        with pytest.raises(Halted) as halted:
            await waiting[0]
        assert halted.value.control == halt_event("r1")
        assert not waiting[1].done()

        await issue_command(settings, "STOP", "fleet", "ada", "enough")
        with pytest.raises(Halted):
            await waiting[1]


async def test_a_kill_stops_only_the_guards_of_its_user_or_tenant(settings: Settings) -> None:
    async with HaltListener(settings=settings) as halts:
        taken: list[str] = []
        never = asyncio.Semaphore(0)
        guards = {
            "of eve": halts.guard("r1", user="eve", tenant="acme"),
            "of acme": halts.guard("r2", user="bob", tenant="acme"),
            "of bob": halts.guard("r3", user="bob"),
            "without a scope": halts.guard("r4"),
        }
        tasks = {name: asyncio.create_task(steps(guard, taken, never)) for name, guard in guards.items()}
        await until(lambda: len(taken) == 4)

        await issue_command(settings, "STOP", "user:eve", "ada", "abuse")
        with pytest.raises(Halted):
            await tasks["of eve"]
        await issue_command(settings, "STOP", "tenant:acme", "ada", "not paid")
        with pytest.raises(Halted) as halted:
            await tasks["of acme"]
        assert halted.value.control.tenant == "acme"
        assert [name for name, task in tasks.items() if not task.done()] == ["of bob", "without a scope"]
        for name in ("of bob", "without a scope"):
            tasks[name].cancel()


async def test_a_killed_run_can_continue_after_a_resume_for_every_listener(settings: Settings, worker: Worker) -> None:
    async with HaltListener(settings=settings) as halts:
        task = await guarded(halts, "r1")
        await issue_command(settings, "STOP", "run:r1", "ada", "wrong branch")
        with pytest.raises(Halted, match="wrong branch"):
            await task

        await worker.status("r1", "running")
        await worker.control(resume_event("r1"))
        await until(lambda: not halts.halted("r1"))

    async with HaltListener(settings=settings) as later:
        later.check("r1")


async def test_unsigned_commands_are_refused_where_signatures_are_required(settings: Settings, worker: Worker) -> None:
    signing = settings.model_copy(update={"command_key": load_settings(command_key=KEY).command_key})
    async with HaltListener(settings=signing) as halts:
        task = await guarded(halts, "r1")

        await issue_command(settings, "STOP", "fleet", "eve", "for fun")
        await worker.write("commands", "fleet", None)
        await worker.write("commands", "fleet", b"STOP")
        await until(lambda: halts.command_handler.refused == 3)
        assert halts.fleet.status == "CLEAR"

        stop, _, _ = await issue_command(signing, "STOP", "fleet", "ada", "in earnest")
        with pytest.raises(Halted, match="in earnest"):
            await task

        await issue_command(signing, "CLEAR", "fleet", "ada", "fixed")
        await until(lambda: halts.fleet.status == "CLEAR")
        await worker.write("commands", "fleet", encode_command(stop))  # a recorded command, replayed
        async with HaltListener(settings=signing) as later:
            assert later.fleet.status == "CLEAR"


async def test_a_command_that_every_receiver_would_refuse_is_not_sent(nowhere: str) -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_COMMAND_AUTH=channel"):
        await issue_command(load_settings(brokers=nowhere, command_auth="signed"), "STOP", "fleet", "ada", "")


async def test_a_publisher_with_a_key_signs_operator_events(settings: Settings) -> None:
    signing = settings.model_copy(update={"command_key": load_settings(command_key=KEY).command_key})
    async with TurnPublisher(settings=signing) as turns:
        await turns.operator_stop(run_id="r1", by="ada", reason="enough")
        await turns.operator_resume(run_id="r1", by="ada", grant={"turns": 10, "cost": "0.50"})

    stop, resume = await turns_on(settings)
    assert isinstance(stop, OperatorStop)
    assert isinstance(resume, OperatorResume)
    assert resume.grant == {"maxSteps": 10, "maxCostUsd": 500_000}
    for event in (stop, resume):
        assert event.at is not None
        command_signer(signing).check_event(event, event.at)


def test_the_sync_wrapper_waits_out_a_pause_and_stops(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    asyncio.run(topics.apply(settings))
    asyncio.run(issue_command(settings, "PAUSE", "fleet", "ada", "maintenance"))
    ended: list[BaseException] = []
    entered, slept = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with halts.guard("r1", user="eve") as guard:
                entered.set()
                guard.sleep(3600)
                slept.set()
        except Halted as halted:
            ended.append(halted)

    with BlockingHaltListener(settings=settings) as halts:
        assert halts.fleet.paused
        assert halts.guard("r1").ready(timeout_s=0.01) is False
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert not entered.wait(0.05)

        asyncio.run(issue_command(settings, "CLEAR", "fleet", "ada", "done"))
        assert entered.wait(30)
        asyncio.run(issue_command(settings, "STOP", "user:bob", "ada", "another user"))
        asyncio.run(issue_command(settings, "STOP", "user:eve", "ada", "abuse"))
        thread.join(30)

    assert not slept.is_set()
    assert [str(halted) for halted in ended] == ["run r1 is halted (FLEET001): User eve is stopped by ada: abuse."]
