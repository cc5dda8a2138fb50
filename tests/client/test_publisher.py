"""The publisher without a broker: it neither breaks nor stalls its caller, and reports lost events."""

from __future__ import annotations

import asyncio
import inspect
import logging

import pytest

from streamproc.client import BlockingTurnPublisher, TurnPublisher
from streamproc.errors import InvalidEvent, Undelivered, UnsafeCycle
from streamproc.model.raw_events import parse_raw
from streamproc.settings import load_settings
from tests.waiting import until

FOREVER_MS = 3_600_000


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("streamproc.")]
    return [record.message for record in ours if text in record.message and record.levelno >= logging.WARNING]


def publisher(nowhere: str, **options: object) -> TurnPublisher:
    return TurnPublisher(nowhere, **{"close_timeout_s": 0.01, "block_ms_max": 0} | options)  # type: ignore[arg-type]


def test_mocks_see_that_its_methods_are_awaited() -> None:
    names = ("turn", "run_started", "operator_stop", "operator_resume", "send", "flush")
    assert all(inspect.iscoroutinefunction(getattr(TurnPublisher, name)) for name in names)
    assert not inspect.iscoroutinefunction(BlockingTurnPublisher.turn)
    assert inspect.signature(TurnPublisher.turn) == inspect.signature(BlockingTurnPublisher.turn)


async def test_events_wait_for_an_unavailable_broker(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        for number in range(100):
            assert await turns.turn(run_id="r1", node="coder", output=f"try {number}")

        assert (turns.waiting, turns.delivered, turns.dropped) == (100, 0, 0)


async def test_an_unavailable_broker_is_logged_once(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    async with publisher(nowhere) as turns:
        await until(lambda: turns.trouble, what="the first failed connection")
        first = turns.trouble
        await until(lambda: turns.trouble is not first, what="the second failed connection")

    [warning] = warnings(caplog, "turns are not being delivered")
    assert nowhere in warning


async def test_a_full_buffer_drops_and_counts_and_warns_once(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    async with publisher(nowhere, buffer_max=10) as turns:
        for _ in range(25):
            await turns.turn(run_id="r1", node="coder")

        assert (turns.waiting, turns.dropped) == (10, 15)

    assert len(warnings(caplog, "buffer of 10 events is full")) == 1


async def test_the_buffer_is_bounded_in_bytes(nowhere: str) -> None:
    async with publisher(nowhere, include_content=True, buffer_bytes_max=100_000) as turns:
        for _ in range(25):
            await turns.turn(run_id="r1", node="coder", output="x" * 10_000)

        assert turns.waiting + turns.dropped == 25
        assert 0 < turns.waiting < 10


async def test_a_full_buffer_delays_the_caller_once_per_outage(nowhere: str) -> None:
    async with publisher(nowhere, buffer_max=1, block_ms_max=50) as turns, asyncio.timeout(25):
        for _ in range(1000):  # waiting 50 ms for each would take 50 s
            await turns.turn(run_id="r1", node="coder")

        assert turns.dropped == 999


async def test_a_caller_that_waits_for_space_can_be_cancelled(nowhere: str) -> None:
    async with publisher(nowhere, buffer_max=1, block_ms_max=FOREVER_MS) as turns:
        await turns.turn(run_id="r1", node="coder")
        waiting = asyncio.create_task(turns.turn(run_id="r1", node="coder"))
        await asyncio.sleep(0)
        waiting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (turns.waiting, turns.dropped) == (1, 0)


async def test_a_publishing_loop_lets_other_tasks_run(nowhere: str) -> None:
    ran = asyncio.Event()

    async def other() -> None:
        ran.set()

    async with publisher(nowhere) as turns:
        task = asyncio.create_task(other())
        for _ in range(500):
            await turns.turn(run_id="r1", node="coder")
            if ran.is_set():
                break

        assert ran.is_set()
        await task


async def test_undelivered_events_are_counted_and_logged_at_closing(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with publisher(nowhere) as turns:
        await turns.turn(run_id="r1", node="coder")

    assert turns.dropped == 1
    assert len(warnings(caplog, "1 event not delivered")) == 1


async def test_undelivered_events_raise_with_on_undelivered_raise(nowhere: str) -> None:
    turns = publisher(nowhere, on_undelivered="raise")
    await turns.start()
    await turns.turn(run_id="r1", node="coder")

    with pytest.raises(Undelivered, match="1 event not delivered"):
        await turns.close()


async def test_undelivered_events_do_not_hide_the_error_of_the_body(nowhere: str) -> None:
    async def fails() -> None:
        async with publisher(nowhere, on_undelivered="raise") as turns:
            await turns.turn(run_id="r1", node="coder")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await fails()


async def test_flush_returns_false_if_nothing_was_delivered(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        assert await turns.flush(0.01)
        await turns.turn(run_id="r1", node="coder")
        assert not await turns.flush(0.01)


async def test_an_invalid_event_raises(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        with pytest.raises(InvalidEvent, match="run_id"):
            await turns.turn(run_id="", node="coder")
        with pytest.raises(InvalidEvent, match="type"):
            await turns.event("no.such.type", run_id="r1")

        assert (turns.invalid, turns.waiting) == (2, 0)


async def test_invalid_events_are_dropped_with_on_invalid_drop(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    async with publisher(nowhere, on_invalid="drop") as turns:
        for _ in range(5):
            assert await turns.turn(run_id="r1", node="coder", round=-1) == ""

        assert (turns.invalid, turns.waiting) == (5, 0)
    [warning] = warnings(caplog, "invalid event")
    assert "round" in warning


async def test_the_error_about_an_oversized_event_names_its_field(nowhere: str) -> None:
    settings = load_settings(brokers=nowhere, event_bytes_max=2000)
    async with publisher(nowhere, settings=settings, include_content=True) as turns:
        with pytest.raises(InvalidEvent, match=r"content\.output"):
            await turns.turn(run_id="r1", node="coder", output="x" * 5000)


async def test_unknown_fields_are_counted(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        await turns.send({"run_id": "r1", "node": "coder", "ouput": "misspelt", "toolcalls": []})

        assert turns.unknown_fields == 2
        assert turns.unknown_field_counts == {"ouput": 1, "toolcalls": 1}


async def test_each_unknown_name_is_logged_once(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    async with publisher(nowhere) as turns:
        for _ in range(3):
            await turns.turn(run_id="r1", node="coder", tool_calls=[{"name": "write", "argumets": {}}])

        assert turns.unknown_fields == 3
    assert len(warnings(caplog, "tool_calls.argumets; did you mean arguments?")) == 1


async def test_an_event_that_the_caller_has_parsed_is_counted_and_not_logged(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with publisher(nowhere) as turns:
        await turns.send(parse_raw({"run_id": "r1", "node": "coder", "ouput": "misspelt"}))

        assert turns.unknown_fields == 1
    assert not warnings(caplog, "ouput")


async def test_a_strict_publisher_refuses_unknown_fields(nowhere: str) -> None:
    async with publisher(nowhere, strict=True) as turns:
        with pytest.raises(InvalidEvent, match=r"ouput: unknown field \(did you mean output\?"):
            await turns.send({"run_id": "r1", "node": "coder", "ouput": "misspelt"})
        await turns.send({"run_id": "r1", "node": "coder", "content": "an alias"})

        assert (turns.invalid, turns.waiting) == (1, 1)


async def test_from_underscore_is_an_alias_of_from(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        await turns.turn(run_id="r1", node="coder", from_="planner")

        assert turns.unknown_fields == 0


async def test_publishing_before_opening_raises_with_a_remedy(nowhere: str) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await publisher(nowhere).turn(run_id="r1", node="coder")


async def test_publishing_after_closing_does_not_raise(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    async with publisher(nowhere) as turns:
        pass

    for _ in range(3):
        await turns.turn(run_id="r1", node="coder")
    assert turns.dropped == 3
    assert len(warnings(caplog, "after closing")) == 1


async def test_a_publisher_can_be_opened_only_once(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        with pytest.raises(RuntimeError, match="once"):
            await turns.start()


async def test_closing_is_idempotent(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        await turns.turn(run_id="r1", node="coder")

    await turns.close()
    assert turns.dropped == 1


async def test_closing_leaves_no_tasks(nowhere: str) -> None:
    before = asyncio.all_tasks()
    async with publisher(nowhere) as turns:
        await until(lambda: turns.trouble, what="a failed connection")

    assert asyncio.all_tasks() == before


def test_the_brokers_argument_overrides_the_settings(nowhere: str) -> None:
    settings = load_settings(brokers="elsewhere:1", topic_prefix="mine")

    turns = TurnPublisher(nowhere, settings=settings)

    assert (turns.settings.brokers, turns.settings.topic_prefix) == (nowhere, "mine")


UNSAFE = {"edges": [["a", "b"], ["b", "a"]]}


async def test_an_unsafe_graph_raises_and_is_not_sent(nowhere: str) -> None:
    async with publisher(nowhere) as turns:
        with pytest.raises(UnsafeCycle, match=r"\[a, b\]"):
            await turns.run_started(run_id="r1", graph=UNSAFE)

        assert turns.waiting == 0


@pytest.mark.parametrize("options", [{"on_unsafe": "publish"}, {"on_invalid": "drop"}])
async def test_an_unsafe_graph_is_sent_if_allowed_or_if_invalid_events_are_dropped(
    nowhere: str, options: dict[str, str]
) -> None:
    async with publisher(nowhere, **options) as turns:
        assert await turns.run_started(run_id="r1", graph=UNSAFE)

        assert (turns.waiting, turns.invalid) == (1, 0)
