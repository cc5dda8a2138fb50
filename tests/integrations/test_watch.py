"""`Watch`: what adapters call, in one process and on Kafka."""

from __future__ import annotations

import asyncio
import signal
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from streamproc import Halted, InvalidEvent, Monitor, StreamprocError, TaskEnded, UnsafeCycle, Watch
from streamproc.integrations._instances import Instances
from streamproc.kafka import topics
from streamproc.settings import load_settings
from tests.integrations.fed import fed_by
from tests.waiting import wait_until
from tests.worker.running import WorkerProcess

CALL: dict[str, Any] = {"name": "grep", "args": {"q": "x"}, "result": "no match"}


def again(watch: Watch, run_id: str, times: int = 1) -> None:
    for _ in range(times):
        watch.turn(run_id, "coder", tool_calls=[CALL])


UNUSABLE: tuple[Any, ...] = (None, -1, 1.5, "many", b"x", [], [1], {"a": 1}, object(), True, "\ud800")


@pytest.mark.parametrize("value", UNUSABLE, ids=map(str, range(len(UNUSABLE))))  # the repr of an object is its address
def test_what_a_framework_reports_never_breaks_the_agent(value: Any) -> None:
    watch = Watch()
    for field in ("input_tokens", "cost_usd"):
        for _ in range(2):
            watch.spent("r1", "coder", **{field: value})
        watch.spent("r1", "coder", input_tokens=5, cost_usd="0.01")
        watch.turn("r1", "coder", usage=value)
        watch.turn("r1", value, **{field: value})
    watch.turn(value, "coder")
    watch.spent(value, "coder", input_tokens=1)
    watch.person(value)
    watch.finished(value, status=value)
    watch.check(value)
    assert (watch.halted(value), watch.warning(value)) == (None, None)
    assert watch.faults > 0
    with pytest.raises(Exception):  # noqa: B017, PT011
        Watch(fail="closed").turn([], "coder")  # type: ignore[arg-type]
    again(watch, "r2", 3)
    with pytest.raises(Halted):
        watch.check("r2")


def test_a_stuck_run_is_halted_and_others_are_not() -> None:
    watch = Watch()
    again(watch, "r1", 2)
    watch.check("r1")
    again(watch, "r1")
    watch.check("r2")
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        watch.check("r1")
    halt = watch.halted("r1")
    assert halt.code == "LOOP003"


def test_a_resumed_run_goes_on() -> None:
    monitor = Monitor()
    watch = Watch(monitor)
    again(watch, "r1", 3)
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    watch.turn("r1", "coder", output="Done.")
    watch.check("r1")


def test_the_sender_of_a_turn_is_the_node_before() -> None:
    watch = Watch()
    fed = fed_by(watch)
    for node, more in (
        ("plan", {}),
        ("code", {}),
        ("code", {}),
        ("test", {"from_": None}),
        ("code", {"from_": "lead"}),
    ):
        watch.turn("r1", node, **more)
    assert [turn.get("from") for turn in fed] == [None, "plan", None, None, "lead"]


def test_usage_travels_with_the_next_turn_of_its_node() -> None:
    watch = Watch()
    fed = fed_by(watch)
    watch.spent("r1", "code", input_tokens=10, output_tokens=1, cost_usd="0.10")
    watch.spent("r1", "code", input_tokens=5, cost_usd="0.05")
    watch.turn("r1", "plan")
    watch.turn("r1", "code", usage={"duration_ms": 7})
    watch.turn("r1", "code")
    assert [turn.get("usage") for turn in fed] == [
        None, {"input_tokens": 15, "output_tokens": 1, "cost_usd": "0.15", "duration_ms": 7}, None,
    ]  # fmt: skip


def test_a_fault_of_ours_does_not_reach_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    watch.turn("r1", "coder", tool_calls="nonsense")
    watch.turn("r1", "coder", tool_calls="nonsense")
    assert (watch.faults, len(caplog.records)) == (2, 1)
    with pytest.raises(Exception, match="tool_calls"):
        Watch(fail="closed").turn("r1", "coder", tool_calls="nonsense")


def test_an_unsafe_graph_is_the_callers_to_fix() -> None:
    with pytest.raises(UnsafeCycle):
        Watch().started("r1", graph={"nodes": ["a", "b"], "edges": [["a", "b"], ["b", "a"]]})


def test_the_run_of_a_context_is_seen_in_its_tasks_and_not_outside() -> None:
    watch = Watch()

    async def inner() -> str:
        return watch.run_id(framework="thread")

    async def outer() -> tuple[str, ...]:
        with watch.run("r7", user="ada") as run:
            assert run.run_id == "r7"
            return (await asyncio.create_task(inner()), await asyncio.to_thread(watch.run_id), watch.run_id("given"))

    assert asyncio.run(outer()) == ("r7", "r7", "given")
    assert watch.run_id(framework="thread") == "thread"
    assert uuid.UUID(watch.run_id()) != uuid.UUID(watch.run_id())


def test_a_warning_is_told_once() -> None:
    watch = Watch(on_warn="tell")
    again(watch, "r1", 2)
    assert watch.nudge("r1").startswith("grep returned the same result")
    assert watch.nudge("r1") == ""
    silent = Watch()
    again(silent, "r1", 2)
    assert silent.nudge("r1") == ""


def test_threads_may_share_a_watch() -> None:
    watch = Watch()
    threads = [threading.Thread(target=again, args=(watch, f"r{number}", 3)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(watch.halted(f"r{number}") for number in range(8))
    assert watch.faults == 0


def test_many_runs_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.integrations.watch.RUNS_MAX", 3)
    watch = Watch()
    for number in range(10):
        watch.turn(f"r{number}", "coder", output="Hello.")
    assert len(watch._runs) == 3


@pytest.mark.kafka
def test_a_worker_stops_a_run_and_warns_its_model(
    brokers: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", topic_prefix)
    settings = load_settings(brokers=brokers)
    asyncio.run(topics.apply(settings))
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    watch = Watch(brokers=brokers, on_warn="tell")
    try:
        asyncio.run(worker.ready())
        again(watch, "r1", 2)
        assert watch.flush()
        said = wait_until(lambda: watch.nudge("r1"))
        again(watch, "r1")
        halt = wait_until(lambda: watch.halted("r1"))
        assert said.startswith("grep returned the same result")
        assert halt.code == "LOOP003"
        with pytest.raises(Halted):
            watch.check("r1")
        assert watch.faults == 0
    finally:
        watch.close()
        worker.end(signal.SIGTERM)


# Tasks, warnings, status, resume, and who reports.


def test_equal_answers_about_other_tasks_are_no_repeats() -> None:
    watch = Watch()
    for number in range(9):
        with watch.task(f"item {number}"):
            again(watch, "r1")
    assert watch.halted("r1") is None
    with watch.task("item 9"):
        again(watch, "r1", 3)
    halt = watch.halted("r1")
    assert halt.task_id == "item 9"


def test_a_long_task_is_reported_as_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, fed = Watch(), []
    monkeypatch.setattr(watch._backend, "feed", fed.append)
    for task in ("x" * 200, "x" * 201, 7):
        with watch.task(task):
            again(watch, "r1")
    again(watch, "r1")
    first, second, third = [turn["task_id"] for turn in fed[:3]]
    assert (len(first), len(second), third, "task_id" in fed[3]) == (16, 16, "7", False)
    assert first != second


def test_a_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    again(watch, "r1", 2)
    assert [record.message for record in caplog.records] == [
        "run r1: grep returned the same result for the same arguments at turns 0 and 1, with no new information in "
        "between. (LOOP003)"
    ]


def test_a_run_is_resumed_in_this_process() -> None:
    watch = Watch()
    assert watch.status("r1") is None
    again(watch, "r1", 3)
    status = watch.status("r1")
    assert (status.status, status.turns) == ("halted", 3)
    watch.resume("r1", by="ada", reason="the index was rebuilt")
    watch.check("r1")
    with pytest.raises(InvalidEvent):
        Watch(fail="closed").resume("")


def test_on_kafka_others_know_the_status_and_resume(brokers: str) -> None:
    watch = Watch(brokers=brokers)
    for question in (watch.status, watch.resume):
        with pytest.raises(StreamprocError, match=r"run `streamproc (status|resume)`"):
            question("r1")
    watch.close()


def test_the_first_adapter_that_asks_reports() -> None:
    class Adapter:
        pass

    monitor = Monitor()
    first, second, alone = Adapter(), Adapter(), Adapter()
    watches = Watch(monitor), Watch(monitor)
    assert [watches[0].owns("call", first), watches[1].owns("call", second), watches[0].owns("call", first)] == [
        True, False, True,
    ]  # fmt: skip
    assert Watch().owns("call", alone)
    del first
    assert watches[1].owns("call", second), "the first one is gone"


def test_agents_beside_each_other_have_names_of_their_own() -> None:
    class Agent:
        pass

    instances, first, second = Instances(), Agent(), Agent()
    assert [instances.name("r1", "coder", one) for one in (first, second, "third", first)] == [
        "coder", "coder/2", "coder/3", "coder",
    ]  # fmt: skip
    assert instances.name("r2", "coder", second) == "coder"
    instances.done("r1", "coder", "third")
    instances.done("r1", "coder", "third")
    del first
    assert [instances.name("r1", "coder", one) for one in (second, "fourth", "fifth")] == [
        "coder/2", "coder", "coder/3",
    ]  # fmt: skip


def test_a_task_that_ends_stops_the_steps_of_its_context_and_no_others() -> None:
    watch = Watch(Monitor("tickets"))
    watch.turn("r", "bob", output="I work on T2.", task_id="T2")
    for number in range(3):
        with watch.task("T1"):
            watch.check("r")
            watch.turn("r", "ada", errors=[{"message": "the build is broken", "class": "BuildError"}])
            watch.turn("r", "ada", output=f"Way {number} is {number * 37} lines long.")
    with watch.task("T1"), pytest.raises(TaskEnded, match="ERROR002 has ended it"):
        watch.check("r")
    with watch.task("T2"):
        watch.check("r")
    watch.check("r")
