"""Reconnecting sessions, and a task that fails at the moment when its caller is cancelled."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from streamproc.errors import Unavailable
from streamproc.kafka import session as module
from streamproc.kafka.session import Backoff, Reconnect, reconnecting, run_in_own_task


class Sessions:
    """Sessions that end with the given errors, one after the other; the last one sets `stop`."""

    def __init__(self, *errors: Exception) -> None:
        self.stop = asyncio.Event()
        self.failures: list[Exception] = []
        self.left = list(errors)

    async def run(self, _backoff: Backoff) -> None:
        if not self.left:
            self.stop.set()
            return
        raise self.left.pop(0)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_FIRST_S", 0.001)


async def test_a_failed_session_is_reported_and_restarted_until_stopped(caplog: pytest.LogCaptureFixture) -> None:
    expected = [OSError("refused"), Unavailable("gone"), TimeoutError()]
    sessions = Sessions(*expected)

    await reconnecting(sessions.run, sessions.failures.append, purpose="testing", stop=sessions.stop)

    assert sessions.failures == expected
    assert not caplog.records


async def test_an_unexpected_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    sessions = Sessions(ZeroDivisionError("a bug"))

    await reconnecting(sessions.run, sessions.failures.append, purpose="testing", stop=sessions.stop)

    [record] = caplog.records
    assert record.message == "unexpected error while testing; reconnecting"
    assert record.exc_info is not None
    assert [type(error) for error in sessions.failures] == [ZeroDivisionError]


async def test_a_session_can_reconnect_without_reporting_a_failure() -> None:
    sessions = Sessions(Reconnect(), Reconnect())

    await reconnecting(sessions.run, sessions.failures.append, purpose="testing", stop=sessions.stop)

    assert (sessions.failures, sessions.left) == ([], [])


async def test_stopping_ends_the_wait_before_the_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_FIRST_S", 3600.0)
    monkeypatch.setattr(module, "BACKOFF_MAX_S", 3600.0)
    sessions = Sessions(OSError("refused"), OSError("never raised"))

    async def stop(_error: Exception) -> None:
        sessions.stop.set()

    tasks: list[asyncio.Task[None]] = []

    def failed(error: Exception) -> None:
        tasks.append(asyncio.create_task(stop(error)))

    async with asyncio.timeout(30):
        await reconnecting(sessions.run, failed, purpose="testing", stop=sessions.stop)

    assert len(sessions.left) == 1


def test_the_wait_doubles_up_to_a_maximum_and_can_be_reset() -> None:
    backoff = Backoff()

    waits = [backoff.next_s() for _ in range(20)]

    assert waits[0] <= module.BACKOFF_FIRST_S
    assert module.BACKOFF_MAX_S / 2 <= waits[-1] <= module.BACKOFF_MAX_S
    backoff.reset()
    assert backoff.next_s() <= module.BACKOFF_FIRST_S


async def test_a_failure_after_the_cancellation_of_the_caller_is_not_logged() -> None:
    loop, logged = asyncio.get_running_loop(), []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        logged.append(context)

    loop.set_exception_handler(note)
    failing = asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ConnectionError("no broker answers")

    waiting = asyncio.create_task(run_in_own_task(fail()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    failing.set()
    await asyncio.sleep(0)  # it has failed, and the waiter has not been notified yet
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    del waiting  # its frames hold the task that failed
    gc.collect()
    assert logged == []
