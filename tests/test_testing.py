"""`streamproc.testing`: what users test their agents and policies with."""

from __future__ import annotations

import asyncio
import doctest
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamproc import Halted, InvalidEvent, UnsafeCycle, Watch, testing
from streamproc.model.raw_events import parse_raw
from streamproc.testing import (
    ManualClock,
    MemoryListener,
    MemoryPublisher,
    RecordingMonitor,
    ScriptedSource,
    trace,
)
from tests.docs.commands import agrees
from tests.docs.pages import ROOT, blocks


def codes(monitor: RecordingMonitor) -> list[tuple[str, str]]:
    return [(control.severity, control.code) for control in monitor.controls]


def halts(text: str, **options: Any) -> list[str]:
    monitor = RecordingMonitor()
    monitor.play(trace(text, **options))
    assert len(monitor.events) == len(trace(text, **options))
    return [halt.code for halt in monitor.halts]


def test_the_docstrings_are_right() -> None:
    result = doctest.testmod(testing)
    assert (result.failed, result.attempted > 3) == (0, True)


@pytest.mark.parametrize(("text", "found"), [
    ("A A A", ["LOOP003"]), ("A*3", ["LOOP003"]), ("A!*3", ["LOOP003"]), ("A B A B A B", ["LOOP002"]),
    ("planner:A coder:B planner:A coder:B planner:A coder:B", ["LOOP002"]), ("A B C D E F", []), ("A+*300", []),
    ("A A B+ A A B+ A", []),
])  # fmt: skip
def test_a_trace_has_the_shape_of_a_loop(text: str, found: list[str]) -> None:
    assert halts(text) == found


def test_a_trace_may_consist_of_other_turns() -> None:
    assert halts("A A A", step=lambda name, _: {"output": name}) == ["LOOP001"]


def test_a_trace_names_who_handed_over() -> None:
    turns = trace("a:X b:Y b:Z a:X", run_id="r7")
    assert [(turn["run_id"], turn["node"], turn.get("from")) for turn in turns] == [
        ("r7", "a", None), ("r7", "b", "a"), ("r7", "b", None), ("r7", "a", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["A:", "A*", "A+!", "*3", "a:b:c"])
def test_a_mistake_in_a_trace_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="is no step"):
        trace(text)


def test_time_passes_only_when_it_is_moved() -> None:
    clock, heard = ManualClock("2026-03-01T12:00:00+01:00"), []
    clock.on_advance(lambda: heard.append(clock.now.isoformat()))
    clock.advance(0.5)
    asyncio.run(clock.sleep(1))
    assert heard == ["2026-03-01T11:00:00.500000+00:00", "2026-03-01T11:00:01.500000+00:00"]
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_time_limits_of_silent_runs_are_enforced_in_their_order() -> None:
    monitor = RecordingMonitor({"budgets": {"maxRuntimeMs": 60_000}})
    monitor.feed(run_id="early", node="coder")
    monitor.clock.advance(5)
    monitor.feed(run_id="late", node="coder")
    monitor.feed(type="run.finished", run_id="late")
    monitor.feed(run_id="other", node="coder")
    monitor.clock.advance(54.9)
    assert monitor.halts == []
    monitor.clock.advance(3600)
    assert [(halt.run_id, halt.at) for halt in monitor.halts] == [
        ("early", "2026-01-01T00:01:00.000Z"), ("other", "2026-01-01T00:01:05.000Z"),
    ]  # fmt: skip
    assert monitor.halted("early") is not None
    assert monitor.halted("late") is None


def test_an_event_keeps_a_time_of_its_own() -> None:
    monitor = RecordingMonitor()
    monitor.feed(run_id="r1", node="coder", at="2026-05-01T00:00:00Z")
    assert monitor.events[0]["at"] == "2026-05-01T00:00:00Z"


def test_a_script_ends_where_an_agent_that_obeys_would() -> None:
    monitor = RecordingMonitor()
    source = ScriptedSource(trace("A*9"), clock=monitor.clock, every_s=2, stop=monitor.halted)
    monitor.play(source)
    assert source.taken == 3
    assert [event["at"] - monitor.events[0]["at"] for event in monitor.events] == [0, 2000, 4000]


async def test_a_script_can_be_read_by_asynchronous_code() -> None:
    assert [turn["node"] async for turn in ScriptedSource(trace("a:A b:B"))] == ["a", "b"]


async def test_a_guard_cancels_its_body() -> None:
    monitor, ended = RecordingMonitor(), []
    async with MemoryPublisher(monitor) as turns, MemoryListener(monitor) as listener:
        heard = listener.subscribe()

        async def work() -> None:
            async with listener.guard("r1"):
                try:
                    while True:
                        await turns.send(trace("A")[0])
                finally:
                    ended.append(len(monitor.events))

        with pytest.raises(Halted, match="run r1 is halted"):
            await asyncio.wait_for(work(), 10)
        assert ended == [3]
        with pytest.raises(Halted):
            listener.check("r1")
        halt = listener.halted("r1")
        assert halt.code == "LOOP003"
        await turns.operator_resume(run_id="r1", by="ada", reason="look again")
        listener.check("r1")
        assert listener.halted("r1") is None
    assert [control.severity async for control in heard] == ["warn", "halt", "info"]
    assert (turns.delivered, turns.invalid) == (4, 0)


async def test_a_publisher_in_memory_refuses_what_the_real_one_does() -> None:
    publisher = MemoryPublisher(RecordingMonitor())
    with pytest.raises(RuntimeError, match="not open"):
        await publisher.turn(run_id="r1", node="coder")
    async with publisher as turns:
        with pytest.raises(InvalidEvent):
            await turns.turn(run_id="r1", node="coder", tool_calls="nonsense")  # type: ignore[typeddict-item]
        with pytest.raises(UnsafeCycle):
            await turns.run_started(run_id="r1", graph={"nodes": ["a", "b"], "edges": [["a", "b"], ["b", "a"]]})
        assert await turns.send(parse_raw({"type": "turn", "run_id": "r1", "node": "coder", "from": "lead"}))
        assert (turns.delivered, turns.invalid) == (1, 2)


def test_adapters_are_tested_by_a_watch() -> None:
    monitor = RecordingMonitor()
    watch = Watch(monitor)
    for _ in range(3):
        watch.turn("r1", "coder", tool_calls=[{"name": "grep", "args": {}, "result": "no match"}])
    assert codes(monitor) == [("warn", "LOOP003"), ("halt", "LOOP003")]


def pytest_in(folder: Path) -> str:
    """Run pytest on a folder as a user does, with no other settings than theirs."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "--rootdir", str(folder)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STREAMPROC_B"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    shown = ""
    for block in blocks(ROOT / "docs" / "testing.md"):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        if block.language == "console":
            shown = block.text.removeprefix("$ python -m pytest -q\n")
    printed = pytest_in(tmp_path)
    assert agrees(shown, printed), printed


def test_a_step_that_could_not_be_watched_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["streamproc.testing"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_it(streamproc_watch):\n    streamproc_watch.turn('r1', 'coder', tool_calls='nonsense')\n"
    )
    assert "1 steps were not watched: InvalidEvent" in pytest_in(tmp_path)
