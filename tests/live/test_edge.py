"""`streamproc up` with brokers: a real Kafka gets its turns, a real worker decides, and hooks obey."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.local.kafka import Broker
from streamproc.cli import build
from streamproc.kafka.reading import open_topic
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import command
from tests.cli.test_on_kafka import drained, options
from tests.live.conftest import Up, call, follow, read_event
from tests.live.test_openapi import check
from tests.waiting import until, wait_until

STUCK = call("cat x", "no such file")


@pytest.fixture
def settings(brokers: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> Settings:
    """Return the settings of a deployment with topics."""
    return applied(brokers, topic_prefix, monkeypatch)


def applied(brokers: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STREAMPROC_BROKERS", brokers)
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", topic_prefix)
    monkeypatch.setenv("STREAMPROC_COMMAND_AUTH", "channel")
    settings = load_settings()
    assert CliRunner().invoke(build(), ["topics", "apply", *options(settings)]).exit_code == 0
    return settings


@pytest.fixture
def worker(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    found = start_worker(settings)
    yield found
    found.send_signal(signal.SIGTERM)
    assert found.wait(timeout=60) == 0, found.communicate()


def start_worker(settings: Settings) -> subprocess.Popen[str]:
    return command("worker", "--log-level", "warning", *options(settings), STREAMPROC_COMMAND_AUTH="channel")


def batch(up: Up, number: int, answer: Any = "no such file") -> dict[str, Any]:
    """Send the event of a batch of calls of one session, and return what its hook prints."""
    used = {"tool_name": "Bash", "tool_input": {"command": "cat x"}, "tool_use_id": f"t{number}"}
    event = {"session_id": "s1", "hook_event_name": "PostToolBatch", "tool_calls": [used | {"tool_response": answer}]}
    return sent(up, event)


def sent(up: Up, event: dict[str, Any]) -> dict[str, Any]:
    status, found = up.ask("POST", "/v1/hooks/claude", {"session_id": "s1"} | event)
    assert status == 200, found
    assert isinstance(found, dict)
    return found


def allowed(up: Up, run_id: str) -> bool:
    return bool(up.ask("POST", "/v1/decide", {"run_id": run_id})[1]["allowed"])


@pytest.mark.kafka
def test_hooks_obey_the_workers(up: Up, settings: Settings, worker: subprocess.Popen[str]) -> None:
    up.start()
    wait_until(lambda: "doubt" not in up.ask("GET", "/v1/health")[1], 60, "it is connected")
    with follow(up, "/v1/decisions") as stream:
        assert batch(up, 0) == batch(up, 1) == {}
        assert read_event(stream)[1]["severity"] == "warn"
    assert "LOOP003" in batch(up, 2)["hookSpecificOutput"]["additionalContext"]
    wait_until(lambda: not allowed(up, "s1"), 60, "the worker halts")
    denied = sent(up, {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "cat x"}})
    assert denied["hookSpecificOutput"]["permissionDecision"] == "deny"
    stop = batch(up, 9)
    assert stop["continue"] is False
    assert stop["stopReason"].endswith("Send another prompt to go on.")
    assert up.ask("GET", "/v1/runs/s1")[1]["status"]["status"] == "halted"
    assert [run["run_id"] for run in up.ask("GET", "/v1/runs")[1]["runs"]] == ["s1"]
    sent(up, {"hook_event_name": "UserPromptSubmit", "prompt": "Try ls."})
    wait_until(lambda: allowed(up, "s1"), 60, "the worker resumes it")
    assert batch(up, 10, "a b") == {}
    assert not up.places.log.exists()
    for record in asyncio.run(turns(settings)):
        assert b"no such file" not in record
        assert b"cat x" not in record


async def turns(settings: Settings) -> list[bytes]:
    async with open_topic(settings, "turns") as reader:
        return [record.value or b"" async for records in reader.batches() for record in records]


@pytest.mark.kafka
def test_turns_are_accepted_and_decisions_are_sent_as_they_come(
    up: Up, settings: Settings, worker: subprocess.Popen[str]
) -> None:
    up.start()
    with follow(up, "/v1/decisions?run=r1") as stream:
        for number in range(3):
            status, found = up.ask("POST", "/v1/turns", STUCK | {"event_id": f"e{number}"})
            assert (status, found["accepted"], found["event_ids"]) == (202, 1, [f"e{number}"])
            check(found, "/v1/turns", "post", 202)
        up.ask("POST", "/v1/turns", [STUCK | {"run_id": "r2"}] * 3)
        found = [read_event(stream) for _ in range(2)]
    assert [(one["run_id"], one["severity"]) for _, one in found] == [("r1", "warn"), ("r1", "halt")]
    with follow(up, "/v1/decisions?run=r1", found[0][0]) as stream:  # a client that has missed the second one
        assert read_event(stream)[1] == found[1][1]
    wait_until(lambda: not allowed(up, "r2"), what="the other run is halted")


def test_without_a_broker_sessions_go_on_and_it_is_said(
    up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", "127.0.0.1:1")
    up.start()
    for number in range(5):
        assert batch(up, number) == {}
    assert allowed(up, "s1")
    status, found = up.ask("POST", "/v1/turns", STUCK)
    assert status == 202
    for answer, path, verb, status in (
        (found, "/v1/turns", "post", 202),
        (up.ask("GET", "/v1/health")[1], "/v1/health", "get", 200),
        (up.ask("POST", "/v1/decide", {"run_id": "r1"})[1], "/v1/decide", "post", 200),
    ):
        assert "Kafka is away" in answer["doubt"]
        check(answer, path, verb, status)
    lines = up.places.faults.read_text().splitlines()
    assert len({line.split(" ", 1)[1] for line in lines}) == len(lines)  # each reason once
    assert " claude Kafka is away: " in lines[0]
    assert "sessions are not protected" in up.output()


def test_a_request_of_which_a_part_would_not_fit_is_refused(
    up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    """The client sends it again: what was taken of it would be there twice."""
    monkeypatch.setenv("STREAMPROC_BROKERS", "127.0.0.1:1")
    up.start()
    for size in (*[1_000] * 9, 600):
        assert up.ask("POST", "/v1/turns", [STUCK] * size)[0] == 202
    status, found = up.ask("POST", "/v1/turns", [STUCK] * 1_000)
    assert (status, "9600 events wait for Kafka" in found["error"]) == (503, True)
    assert up.ask("GET", "/v1/health")[1]["waiting"] == 9_600
    assert up.ask("POST", "/v1/turns", [STUCK] * 400)[0] == 202


def test_a_fault_that_cannot_be_noted_keeps_no_hook_from_its_answer(
    up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", "127.0.0.1:1")
    up.places.faults.mkdir()  # it cannot be written, as on a full disk
    up.start()
    assert batch(up, 0) == {}
    assert "sessions are not protected" in up.output()


def test_whether_a_traced_agent_is_halted_is_not_said_while_nothing_tells(
    up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", "127.0.0.1:1")
    up.start("--otlp", "127.0.0.1:0")
    found = re.search(r"http://127\.0\.0\.1:\d+", up.output())
    assert found is not None
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{found[0]}/halted/r1", timeout=30)


def test_the_log_of_another_is_no_broker(up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", f"local:{up.places.log}")
    up.start()
    assert up.ask("POST", "/v1/turns", [STUCK] * 3)[1]["decisions"][-1]["severity"] == "halt"


@pytest.mark.long
@pytest.mark.kafka
async def test_what_was_sent_while_the_broker_was_away_is_judged_when_it_is_back(
    up: Up, own_broker: Broker, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None, topic_prefix: str
) -> None:
    state = await asyncio.to_thread(own_broker.start)
    settings = await asyncio.to_thread(applied, own_broker.address(state), topic_prefix, monkeypatch)
    worker = start_worker(settings)
    up.start()
    up.ask("POST", "/v1/turns", [STUCK] * 3)
    await until(lambda: not allowed(up, "r1"), 90, "the run is halted")
    own_broker.kill()
    await until(lambda: up.ask("GET", "/v1/health")[1].get("doubt"), 90, "it knows that the broker is away")
    assert not allowed(up, "r1")  # what is known stays in force
    assert up.ask("POST", "/v1/turns", [STUCK | {"run_id": "r2"}] * 3)[0] == 202
    assert allowed(up, "r2")
    await asyncio.to_thread(own_broker.start, state.port)
    await until(lambda: not allowed(up, "r2"), 120, "the other run is halted")
    await until(lambda: drained(settings), 90, "the worker has judged all")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0, worker.communicate()
