"""What a guard does to the task in its body, and what it does not touch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest

from streamproc.client.command_handler import CommandHandler
from streamproc.client.dispatcher import Dispatcher
from streamproc.client.guard import Guard, GuardRegistry
from streamproc.client.halt_records import read_control_news
from streamproc.client.halts import Halts, halted_error
from streamproc.errors import Halted
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.signing import CommandSigner
from streamproc.model.controls import ControlEvent
from tests.client.records import halt_event, resume_event


class Breaker:
    """The inner parts of a listener without Kafka: tests feed it events directly."""

    def __init__(self) -> None:
        self.halts = Halts()
        self.guards = GuardRegistry()
        self.command_handler = CommandHandler(
            self.halts, self.guards, CommandSigner(Keyring(), "streamproc", required=False)
        )
        self.dispatcher = Dispatcher(self.halts, self.guards, asyncio.Event(), set(), self.command_handler)
        self.now_ms = 0

    def receive(self, event: ControlEvent) -> None:
        self.now_ms += 1
        value = event.model_dump_json(exclude_none=True).encode()
        self.dispatcher.control(read_control_news(value, self.now_ms), value)

    def halt(self, run_id: str) -> None:
        self.receive(halt_event(run_id, f"halt-{self.now_ms}"))

    def resume(self, run_id: str) -> None:
        self.receive(resume_event(run_id, f"resume-{self.now_ms}"))

    def guard(self, run_id: str) -> Guard:
        return Guard(run_id, self.guards, self._error)

    def _error(self, run_id: str) -> Halted | None:
        return halted_error(run_id, self.halts.runs[run_id]) if run_id in self.halts.runs else None


@pytest.fixture
def breaker() -> Breaker:
    return Breaker()


class Work:
    """A body that works until it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cleaned = False

    async def forever(self) -> NoReturn:
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)  # clean-up may await
            self.cleaned = True
        raise AssertionError("unreachable")


async def guarded(breaker: Breaker, work: Work, *run_ids: str) -> None:
    async with breaker.guard(run_ids[0]):
        if run_ids[1:]:
            await guarded(breaker, work, *run_ids[1:])
        else:
            await work.forever()


async def started(breaker: Breaker, *run_ids: str) -> tuple[asyncio.Task[None], Work]:
    work = Work()
    task = asyncio.create_task(guarded(breaker, work, *run_ids))
    await work.started.wait()
    return task, work


async def halted_while(breaker: Breaker, run: Callable[[], Coroutine[Any, Any, Any]], *works: Work) -> Any:
    """Return a task that runs this; its run is halted as soon as these works have started."""
    task = asyncio.create_task(run())
    for work in works:
        await work.started.wait()
    breaker.halt("r1")
    return task


async def test_a_halt_cancels_the_body_and_raises_halted(breaker: Breaker) -> None:
    task, work = await started(breaker, "r1")

    breaker.halt("r1")

    with pytest.raises(Halted) as halted:
        await task
    assert halted.value.run_id == "r1"
    assert halted.value.control == halt_event("r1", "halt-0")
    assert work.cleaned


async def test_a_run_that_is_halted_already_does_not_start(breaker: Breaker) -> None:
    breaker.halt("r1")
    work = Work()

    with pytest.raises(Halted):
        await guarded(breaker, work, "r1")

    assert not work.started.is_set()


async def test_a_halt_passes_through_code_that_retries_every_exception(breaker: Breaker) -> None:
    work = Work()
    tries = 0

    async def stubborn() -> None:
        nonlocal tries
        async with breaker.guard("r1"):
            while True:
                tries += 1
                with contextlib.suppress(Exception):  # as agent loops do
                    await work.forever()

    with pytest.raises(Halted):
        await (await halted_while(breaker, stubborn, work))
    assert tries == 1


async def test_a_halt_does_not_affect_other_runs(breaker: Breaker) -> None:
    task, _ = await started(breaker, "r1")

    breaker.halt("r2")
    await asyncio.sleep(0)
    assert not task.done()

    breaker.halt("r1")
    with pytest.raises(Halted):
        await task


async def test_a_cancellation_from_outside_stays_a_cancellation(breaker: Breaker) -> None:
    task, work = await started(breaker, "r1")

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert work.cleaned
    assert len(breaker.guards) == 0


@pytest.mark.parametrize("outside_first", [True, False])
async def test_a_cancellation_from_outside_wins_over_a_halt(breaker: Breaker, outside_first: bool) -> None:
    task, _ = await started(breaker, "r1")

    if outside_first:
        task.cancel()
    breaker.halt("r1")
    if not outside_first:
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_the_task_can_continue_after_a_halt(breaker: Breaker) -> None:
    work = Work()

    async def orchestrator() -> int:
        try:
            await guarded(breaker, work, "r1")
        except Halted:
            await asyncio.sleep(0)
        return asyncio.current_task().cancelling()

    assert await (await halted_while(breaker, orchestrator, work)) == 0


async def test_a_halt_after_the_body_cancels_nothing(breaker: Breaker) -> None:
    async with breaker.guard("r1"):
        pass

    breaker.halt("r1")
    await asyncio.sleep(0)

    assert asyncio.current_task().cancelling() == 0


async def test_a_body_that_swallows_its_cancellation_is_still_halted(breaker: Breaker) -> None:
    work = Work()

    async def swallows() -> None:
        async with breaker.guard("r1"):
            with contextlib.suppress(BaseException):  # the worst case in agent code
                await work.forever()

    task = await halted_while(breaker, swallows, work)
    with pytest.raises(Halted):
        await task
    assert task.cancelling() == 0


async def test_an_error_during_clean_up_becomes_the_cause_of_halted(breaker: Breaker) -> None:
    work = Work()

    async def fails() -> None:
        async with breaker.guard("r1"):
            try:
                await work.forever()
            finally:
                raise OSError("disk full")

    with pytest.raises(Halted) as halted:
        await (await halted_while(breaker, fails, work))
    assert isinstance(halted.value.__cause__, OSError)


async def test_an_error_of_the_body_propagates(breaker: Breaker) -> None:
    with pytest.raises(ZeroDivisionError):
        async with breaker.guard("r1"):
            _ = 1 / 0


async def test_an_interrupt_propagates(breaker: Breaker) -> None:
    async def interrupted() -> None:
        async with breaker.guard("r1"):
            asyncio.get_running_loop().call_soon(breaker.halt, "r1")
            try:
                await Work().forever()
            finally:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await interrupted()
    assert asyncio.current_task().cancelling() == 0


async def test_a_check_of_a_halted_run_raises(breaker: Breaker) -> None:
    task, _ = await started(breaker, "r1")
    breaker.halt("r1")
    with pytest.raises(Halted):
        await task

    guard = breaker.guard("r1")
    with pytest.raises(Halted):
        guard.check()


async def test_the_outermost_guard_of_a_run_raises(breaker: Breaker) -> None:
    task, work = await started(breaker, "r1", "r1", "r1")

    breaker.halt("r1")

    with pytest.raises(Halted):
        await task
    assert task.cancelling() == 0
    assert work.cleaned


@pytest.mark.parametrize(("halts", "raises"), [
    (["outer"], "outer"), (["inner"], "inner"), (["inner", "outer"], "outer"), (["outer", "inner"], "outer"),
])  # fmt: skip
async def test_the_outermost_guard_whose_run_is_halted_raises(breaker: Breaker, halts: list[str], raises: str) -> None:
    task, _ = await started(breaker, "outer", "inner")

    for run_id in halts:
        breaker.halt(run_id)

    with pytest.raises(Halted) as halted:
        await task
    assert halted.value.run_id == raises
    assert task.cancelling() == 0


async def test_the_outer_run_can_handle_an_inner_halt_and_continue(breaker: Breaker) -> None:
    work = Work()

    async def parent() -> str:
        async with breaker.guard("parent"):
            try:
                await guarded(breaker, work, "child")
            except Halted:
                await asyncio.sleep(0)
                return "continued"
        return "unreachable"

    task = asyncio.create_task(parent())
    await work.started.wait()
    breaker.halt("child")

    assert await task == "continued"


async def test_every_task_of_a_run_is_stopped(breaker: Breaker) -> None:
    tasks = [(await started(breaker, "r1"))[0] for _ in range(5)]

    breaker.halt("r1")

    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Halted] * 5
    assert len(breaker.guards) == 0


async def test_a_task_group_in_the_body_is_unwound(breaker: Breaker) -> None:
    works = [Work(), Work()]

    async def team() -> None:
        async with breaker.guard("r1"), asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work.forever())

    with pytest.raises(Halted):
        await (await halted_while(breaker, team, *works))
    assert all(work.cleaned for work in works)


async def test_a_timeout_around_a_guard_stays_a_timeout(breaker: Breaker) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await guarded(breaker, Work(), "r1")
    assert asyncio.current_task().cancelling() == 0


async def test_a_halt_inside_a_timeout_is_a_halt(breaker: Breaker) -> None:
    work = Work()

    async def limited() -> None:
        async with breaker.guard("r1"), asyncio.timeout(3600):
            await work.forever()

    task = await halted_while(breaker, limited, work)
    with pytest.raises(Halted):
        await task
    assert task.cancelling() == 0


async def test_a_resumed_run_can_be_guarded_again(breaker: Breaker) -> None:
    breaker.halt("r1")
    breaker.resume("r1")

    task, _ = await started(breaker, "r1")
    breaker.halt("r1")

    with pytest.raises(Halted):
        await task


async def test_a_guard_can_be_used_only_once(breaker: Breaker) -> None:
    guard = breaker.guard("r1")
    async with guard:
        pass

    with pytest.raises(RuntimeError, match="once"):
        async with guard:
            pass
