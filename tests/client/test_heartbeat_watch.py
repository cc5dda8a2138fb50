"""What a listener makes of the workers' heartbeats, without a broker: its state, what it logs and calls, who waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, get_args

import pytest

from streamproc.client import BlockingHaltListener, HaltListener
from streamproc.client.heartbeat_watch import HeartbeatWatch
from streamproc.errors import Halted, InvalidSettings
from streamproc.fleet.workers import DISCONNECTED_AFTER_S, GONE_AFTER_S, REJOIN_S, WatchName
from streamproc.kafka.partitioning import Home
from streamproc.metrics import definitions
from streamproc.settings import load_settings
from tests.client.records import halt_event
from tests.client.test_halts import control
from tests.fleet.heartbeats import NOON_MS, as_record, heartbeat
from tests.waiting import until, wait_until

LATE_S = GONE_AFTER_S + 1


class Clock:
    """Lets a watch hear heartbeats, and time pass."""

    def __init__(self, watch: HeartbeatWatch) -> None:
        self.watch = watch
        self.now_s = 1_000.0

    def passes(self, seconds: float, *, contact: bool = True) -> None:
        """Let time pass, with the broker answering, or not."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.5
            if contact:
                self.watch.workers.contact(self.now_s)
            self.watch.look(self.now_s)

    def beats(self, **fields: Any) -> None:
        """Let a worker give a heartbeat."""
        self.watch.workers.apply(as_record(heartbeat(at_ms=NOON_MS + int(self.now_s * 1000), **fields)), self.now_s)

    def watching(self, **fields: Any) -> Clock:
        """Begin with a worker that lives."""
        self.passes(1)
        self.beats(**({"owned": range(4)} | fields))
        self.passes(1)
        assert self.watch.state.name == "watching"
        return self


def listener(**options: Any) -> tuple[HaltListener, Clock]:
    halts = HaltListener(settings=load_settings(brokers="127.0.0.1:1"), **options)
    return halts, Clock(halts.watch)


def test_each_change_is_logged_once_and_called_back_once(caplog: pytest.LogCaptureFixture) -> None:
    halts, clock = listener()
    seen: list[str] = []
    end = halts.on_state(lambda state: seen.append(state.name))

    clock.watching().passes(LATE_S)
    clock.passes(30)
    assert halts.state.name == "unwatched"
    assert halts.state.since_ms > NOON_MS
    clock.beats(owned=range(4))
    clock.passes(3)
    end()
    clock.passes(LATE_S)

    assert seen == ["watching", "unwatched", "watching"]
    logged = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [message.partition(":")[0] for message in logged] == [
        "no worker decides", "workers decide again", "no worker decides",
    ]  # fmt: skip
    assert "unwatched since 2026-01-31" in logged[0]


def test_a_lost_broker_is_no_silence_of_workers_and_is_no_news_after_it(caplog: pytest.LogCaptureFixture) -> None:
    halts, clock = listener()
    seen: list[str] = []
    halts.on_state(lambda state: seen.append(state.name))
    clock.watching()

    clock.passes(60, contact=False)
    assert halts.state.name == "disconnected"
    assert halts.state.for_s > DISCONNECTED_AFTER_S
    clock.passes(REJOIN_S)
    clock.beats(owned=range(4))
    clock.passes(1)

    assert seen == ["watching", "disconnected", "watching"]
    logged = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [message.partition(":")[0] for message in logged] == ["Kafka does not answer", "workers decide again"]


def test_a_function_that_raises_harms_neither_the_listener_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    halts, clock = listener()
    seen: list[str] = []

    def fail(_state: object) -> None:
        raise RuntimeError("a bug of the program")

    halts.on_state(fail)
    halts.on_state(lambda state: seen.append(state.name))
    clock.watching()

    assert seen == ["watching"]
    assert "a bug of the program" in caplog.text


def test_a_process_that_stood_still_has_heard_nothing_and_says_nothing() -> None:
    halts, clock = listener()
    clock.watching()
    seen: list[str] = []
    halts.on_state(lambda state: seen.append(state.name))

    clock.now_s += 300  # the loop was blocked, or the process stopped
    clock.watch.look(clock.now_s)
    assert halts.state_of("r1").name == halts.state.name == "watching"
    clock.passes(3)
    clock.beats(owned=range(4))
    clock.passes(4)

    assert seen == []
    clock.passes(LATE_S + REJOIN_S)
    assert seen == ["unwatched"], "later, silence counts again"


def home(run_id: str) -> int:
    return Home("murmur2", 4).of(run_id.encode())


def test_a_run_has_the_state_of_its_home_partition() -> None:
    halts, clock = listener()
    lost, kept = "r1", next(f"r{n}" for n in range(2, 99) if home(f"r{n}") != home("r1"))
    clock.watching()
    for _ in range(8):
        clock.beats(owned=[number for number in range(4) if number != home(lost)])
        clock.passes(2)

    assert halts.state.name == "watching"
    assert halts.state_of(lost).name == halts.guard(lost).state.name == "unwatched"
    assert halts.state_of(kept).name == halts.guard(kept).state.name == "watching"
    anywhere = HaltListener(settings=load_settings(brokers="127.0.0.1:1", partitioner="any"))
    clock.watch, _ = anywhere.watch, clock.watching()
    assert anywhere.state_of(lost) == anywhere.state


@pytest.mark.parametrize(
    ("listeners", "guards", "waits"),
    [("continue", None, False), ("pause", None, True), ("continue", "pause", True), ("pause", "continue", False)],
)
def test_who_waits_is_said_by_the_listener_or_the_guard(listeners: Any, guards: Any, waits: bool) -> None:
    halts, clock = listener(on_unwatched=listeners)
    assert not halts.waits("r1", guards).until_ready(), "unknown pauses nothing"
    clock.watching()
    assert not halts.waits("r1", guards).until_ready()

    clock.passes(LATE_S)
    assert bool(halts.waits("r1", guards).until_ready()) is waits
    clock.passes(20, contact=False)
    assert halts.state.name == "disconnected"
    assert bool(halts.waits("r1", guards).until_ready()) is waits


def test_the_setting_is_the_default_and_a_misspelt_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_ON_UNWATCHED", "pause")
    assert HaltListener("127.0.0.1:1").on_unwatched == "pause"
    assert HaltListener("127.0.0.1:1", on_unwatched="continue").on_unwatched == "continue"
    with pytest.raises(ValueError, match=r"on_unwatched: expected one of .*got 'puase'"):
        HaltListener("127.0.0.1:1", on_unwatched="puase")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_unwatched"):
        HaltListener("127.0.0.1:1").guard("r1", on_unwatched="wait")  # type: ignore[arg-type]
    monkeypatch.setenv("STREAMPROC_ON_UNWATCHED", "stop")
    with pytest.raises(InvalidSettings, match="STREAMPROC_ON_UNWATCHED"):
        load_settings()


async def test_a_guard_waits_for_a_worker_and_a_running_body_is_left_alone() -> None:
    halts, clock = listener(on_unwatched="pause")
    steps: list[str] = []

    async def work(run_id: str) -> None:
        async with halts.guard(run_id) as guard:
            steps.append("entered")
            await guard.ready()
            steps.append("ready")

    clock.watching()
    async with halts.guard("running") as guard:
        clock.passes(LATE_S)
        guard.check()
        waiting = asyncio.create_task(work("r1"))
        ready = asyncio.create_task(guard.ready())
        await until(lambda: len(halts.command_handler._waiting) == 2)
        clock.passes(5)
        await asyncio.sleep(0)
        assert steps == []
        assert not ready.done()
        clock.beats(owned=range(4))
        clock.passes(1)
        await asyncio.gather(waiting, ready)
    assert steps == ["entered", "ready"]


async def test_a_halt_ends_the_wait() -> None:
    halts, clock = listener(on_unwatched="pause")
    clock.watching().passes(LATE_S)
    ready = asyncio.create_task(halts.guard("r1").ready())
    await until(lambda: halts.command_handler._waiting)

    halts.dispatcher.control(control(halt_event("r1")), halt_event("r1").model_dump_json().encode())

    with pytest.raises(Halted):
        await ready


async def test_a_listener_that_closes_lets_go_on_what_waits() -> None:
    halts, clock = listener(on_unwatched="pause")
    clock.watching().passes(LATE_S)
    ready = asyncio.create_task(halts.guard("r1").ready())
    await until(lambda: halts.command_handler._waiting)

    halts.watch.close()

    await ready
    assert halts.state.name == "unknown"


def test_blocking_guards_wait_too() -> None:
    halts = BlockingHaltListener(settings=load_settings(brokers="127.0.0.1:1"), on_unwatched="pause")
    clock = Clock(halts.watch)
    clock.watching().passes(LATE_S)
    guard = halts.guard("r1")
    assert (guard.state.name, halts.state.name, halts.state_of("r1").name) == ("unwatched",) * 3
    assert not guard.ready(timeout_s=0)
    assert halts.guard("r1", on_unwatched="continue").ready(timeout_s=0)

    entered = threading.Event()

    def work() -> None:
        with guard:
            entered.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: halts.command_handler._waiting)
    assert not entered.is_set()
    clock.beats(owned=range(4))
    clock.passes(1)
    thread.join(30)
    assert entered.is_set()


def test_the_gauge_names_every_state() -> None:
    assert set(get_args(WatchName)) == set(definitions.LISTENER_STATES)
