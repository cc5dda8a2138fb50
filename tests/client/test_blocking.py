"""The sync wrappers of publisher and listener."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from streamproc.client import BlockingHaltListener, BlockingTurnPublisher
from streamproc.errors import Halted, InvalidEvent, Unavailable, Undelivered
from streamproc.kafka import topics
from streamproc.model import wire
from streamproc.settings import Settings, load_settings
from tests.client.records import halt_event, open_worker, read_all
from tests.waiting import wait_until

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent


@pytest.fixture
def own_settings(brokers: str, topic_prefix: str) -> Settings:
    """Like `settings`, for tests without an event loop."""
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=3)
    asyncio.run(topics.apply(settings))
    return settings


def halt(settings: Settings, event: ControlEvent) -> None:
    async def write() -> None:
        async with open_worker(settings) as worker:
            await worker.control(event)

    asyncio.run(write())


def publisher(nowhere: str, **options: object) -> BlockingTurnPublisher:
    return BlockingTurnPublisher(nowhere, **{"close_timeout_s": 0.01, "block_ms_max": 0} | options)


def test_events_wait_for_an_unavailable_broker(nowhere: str) -> None:
    with publisher(nowhere) as turns:
        ids = {turns.turn(run_id="r1", node="coder") for _ in range(100)}

        assert len(ids) == 100
        assert (turns.waiting, turns.delivered) == (100, 0)

    assert turns.dropped == 100


def test_the_buffer_is_bounded(nowhere: str) -> None:
    with publisher(nowhere, buffer_max=10) as turns:
        for _ in range(500):
            turns.turn(run_id="r1", node="coder")
        assert not turns.flush(0.01)

        assert (turns.waiting, turns.dropped) == (10, 490)


def test_an_invalid_event_raises_in_the_caller(nowhere: str) -> None:
    with publisher(nowhere) as turns, pytest.raises(InvalidEvent, match="node"):
        turns.turn(run_id="r1", node="")


def test_undelivered_events_raise_with_on_undelivered_raise(nowhere: str) -> None:
    turns = publisher(nowhere, on_undelivered="raise")
    turns.start()
    turns.turn(run_id="r1", node="coder")

    with pytest.raises(Undelivered):
        turns.close()


def test_publishing_before_opening_raises_with_a_remedy(nowhere: str) -> None:
    with pytest.raises(RuntimeError, match="with BlockingTurnPublisher"):
        publisher(nowhere).turn(run_id="r1", node="coder")


def test_publishing_after_closing_does_not_raise(nowhere: str) -> None:
    with publisher(nowhere) as turns:
        pass

    assert turns.turn(run_id="r1", node="coder")
    assert turns.dropped == 1


def test_the_thread_ends_with_the_publisher(nowhere: str) -> None:
    before = threading.active_count()
    with publisher(nowhere):
        assert threading.active_count() == before + 1

    assert threading.active_count() == before


def test_an_open_publisher_does_not_keep_the_interpreter_running(nowhere: str) -> None:
    program = (
        "from streamproc import BlockingTurnPublisher\n"
        f"turns = BlockingTurnPublisher({nowhere!r}, close_timeout_s=0.1)\n"
        "turns.start()\n"
        "turns.turn(run_id='r1', node='coder')\n"
        "print('the end')\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout == "the end\n"
    assert "1 event not delivered" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_using_a_publisher_in_a_forked_child_raises_with_a_remedy(nowhere: str) -> None:
    program = (
        "import os\n"
        "from streamproc import BlockingTurnPublisher\n"
        f"with BlockingTurnPublisher({nowhere!r}, close_timeout_s=0.1) as turns:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            turns.turn(run_id='r1', node='coder')\n"
        "        except RuntimeError as error:\n"
        "            print(error, flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert "open it in the child" in ended.stdout


def test_opening_without_a_broker_raises(nowhere: str) -> None:
    before = threading.active_count()

    with pytest.raises(Unavailable, match=nowhere), BlockingHaltListener(nowhere, start_timeout_s=0.3):
        pass

    assert threading.active_count() == before


def test_without_waiting_work_proceeds_unguarded(nowhere: str) -> None:
    with BlockingHaltListener(nowhere, wait=False) as halts, halts.guard("r1") as guard:
        guard.check()
        halts.check("r1")

        assert halts.halted("r1") is None
        assert not halts.caught_up


@pytest.mark.kafka
def test_turns_arrive_from_many_threads(own_settings: Settings) -> None:
    with BlockingTurnPublisher(settings=own_settings) as turns:

        def work(name: str) -> None:
            for seq in range(100):
                turns.turn(run_id=name, node="coder", seq=seq)

        threads = [threading.Thread(target=work, args=(f"run-{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert turns.flush(30)
        assert (turns.delivered, turns.dropped, turns.waiting) == (400, 0, 0)

    events = [wire.decode(record.value or b"") for record in asyncio.run(read_all(own_settings))]
    for number in range(4):
        assert [event.seq for event in events if event.run_id == f"run-{number}"] == list(range(100))


@pytest.mark.kafka
def test_a_publisher_that_waits_for_space_loses_nothing(own_settings: Settings) -> None:
    with BlockingTurnPublisher(settings=own_settings, buffer_max=20, block_ms_max=60_000) as turns:
        for seq in range(300):
            turns.turn(run_id="r", node="coder", seq=seq)
        assert turns.flush(30)

        assert (turns.delivered, turns.dropped) == (300, 0)


@pytest.mark.kafka
def test_a_guard_raises_at_its_next_check(own_settings: Settings) -> None:
    def work(halts: BlockingHaltListener) -> None:
        with halts.guard("r1") as guard:
            guard.check()
            halt(own_settings, halt_event("r1"))
            wait_until(guard.check, what="a halt", every_s=0.001)

    with BlockingHaltListener(settings=own_settings) as halts:
        with pytest.raises(Halted) as halted:
            work(halts)
        assert halted.value.control == halt_event("r1")

        with pytest.raises(Halted), halts.guard("r1"):
            pytest.fail("the body of a halted run started")


@pytest.mark.kafka
@pytest.mark.parametrize("error", [None, ConnectionError("which the caller would have retried")])
def test_a_guard_raises_at_its_exit(own_settings: Settings, error: Exception | None) -> None:
    def work(halts: BlockingHaltListener) -> None:
        with halts.guard("r1"):
            halt(own_settings, halt_event("r1"))
            wait_until(lambda: halts.halted("r1"))
            if error is not None:
                raise error

    with BlockingHaltListener(settings=own_settings) as halts, pytest.raises(Halted) as halted:
        work(halts)
    assert halted.value.__context__ is error


@pytest.mark.kafka
def test_a_halt_interrupts_the_sleep_of_a_guard(own_settings: Settings) -> None:
    def work(halts: BlockingHaltListener) -> None:
        with halts.guard("r1") as guard:
            threading.Thread(target=halt, args=(own_settings, halt_event("r1"))).start()
            guard.sleep(3600)

    with BlockingHaltListener(settings=own_settings) as halts, pytest.raises(Halted):
        work(halts)
