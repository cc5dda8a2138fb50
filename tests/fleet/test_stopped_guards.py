"""How many runs a command has stopped: guards in other processes, some frozen, on a real Kafka with a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.fleet.commands import Command, issue
from streamproc.kafka import topics as kafka_topics
from streamproc.read_model.command_progress import command_progress
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ModelReader
from streamproc.settings import Settings
from tests.cli.conftest import ROOT
from tests.waiting import until, wait_until
from tests.worker.conftest import settings_for
from tests.worker.running import WorkerProcess, environment_of, run_sync


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start agents of these runs in one process; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(settings: Settings, *runs: str, **more: str) -> subprocess.Popen[str]:
        with (tmp_path / f"agents-{len(started)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "fleet" / "guarded.py"), *runs],
                env=os.environ | environment_of(settings) | {"PYTHONPATH": str(ROOT)} | more,
                stdout=log, stderr=log, text=True,
            )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def names(process: int, count: int = 10) -> list[str]:
    return [f"run-{process}{number}" for number in range(count)]


@pytest.mark.long
async def test_fifty_guards_of_which_ten_are_frozen_are_counted_and_named(
    brokers: str, topic_prefix: str, tmp_path: Path, start: Callable[..., Any]
) -> None:
    settings = settings_for(brokers, topic_prefix)
    await kafka_topics.apply(settings)
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    model = ReadModel()
    reader = ModelReader(settings, model, since_ms=0)
    try:
        agents = [start(settings, *names(process)) for process in range(5)]
        start(settings, "mute-0", "mute-1", STREAMPROC_GUARD_REPORTS="false")
        await worker.ready()
        await reader.start()
        await until(lambda: model.runs_in_scope("fleet") == 52, 60, "52 runs at work", every_s=0.2)
        watching = lambda: model._one("SELECT count(*) FROM guards WHERE stopped_ms = 0")[0]  # noqa: E731
        await until(lambda: watching() == 50, 60, "50 guards that report", every_s=0.2)
        agents[3].send_signal(signal.SIGSTOP)

        command = Command(verb="stop", scope="fleet", by="ada", why="a drill")
        await issue(settings, command)
        host = f"{os.uname().nodename}/{agents[3].pid}"
        some = ", ".join(f"{name} ({host})" for name in names(3)[:5])
        said = f"stopped 40 of 52; 10 do not answer: {some}, …; 2 do not report"
        await until(lambda: command_progress(command, model).outcome == said, 60, said, every_s=0.2)
        await until(lambda: command_progress(command, model).stage == "accepted", 60, "a worker", every_s=0.2)
        others = [agent for agent in agents if agent is not agents[3]]
        await until(lambda: [agent.poll() for agent in others] == [0] * 4, 60, "the other agents to end")

        agents[3].send_signal(signal.SIGCONT)
        await until(lambda: command_progress(command, model).stage == "obeyed", 60, "the others", every_s=0.2)
        assert command_progress(command, model).outcome == "stopped 50 of 52; 2 do not report"
    finally:
        await reader.stop()
        model.close()
        worker.end(signal.SIGKILL)


@pytest.mark.long
def test_the_command_line_counts_and_does_not_take_silence_for_an_answer(
    brokers: str, topic_prefix: str, tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(brokers, topic_prefix)
    run_sync(kafka_topics.apply(settings))
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)

    def at_work() -> int:
        listed = CliRunner().invoke(build(), ["runs", "--json"]).stdout.splitlines()
        return sum(json.loads(line)["status"] == "running" for line in listed)

    try:
        start(settings, "a-0", "a-1")
        frozen = start(settings, "b-0", "b-1")
        run_sync(worker.ready())
        wait_until(lambda: at_work() == 4, 60, "4 runs at work", every_s=0.2)
        frozen.send_signal(signal.SIGSTOP)
        done = CliRunner().invoke(build(), ["stop-all", "--by", "ada", "--why", "a drill", "--wait", "15s", "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert (found["state"], found["expected"], found["stopped"]) == ("accepted", 4, 2)
        assert found["not_stopped"] == ["b-0", "b-1"]
    finally:
        worker.end(signal.SIGKILL)
