"""The process: one at a time, with nothing lost when it is killed, for this user only."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamproc.errors import InvalidSettings
from streamproc.live import process
from streamproc.live.places import LivePlaces
from streamproc.live.process import LiveOptions, serve, token_of
from streamproc.live.store import COMMITS_MAX, CONTROL, TURNS, LiveLog
from streamproc.model.wire import decode
from streamproc.policy import load_policy
from tests.live.conftest import Up, call, follow, read_event
from tests.waiting import wait_until

KILLS = int(os.environ.get("STREAMPROC_TEST_KILLS", "12"))


def test_turns_are_judged_over_http(up: Up) -> None:
    up.start()
    status, found = up.ask("POST", "/v1/turns", [call("cat x", "no such file")] * 2)
    assert (status, found["accepted"]) == (200, 2)
    assert [one["severity"] for one in found["decisions"]] == ["warn"]
    _, found = up.ask("POST", "/v1/turns", call("cat x", "no such file"))
    [halt] = found["decisions"]
    assert halt["severity"] == "halt"
    assert up.ask("POST", "/v1/decide", {"run_id": "r1"})[1] == {"run_id": "r1", "allowed": False, "halt": halt}
    assert up.ask("POST", "/v1/decide", {"run_id": "r2"})[1]["allowed"] is True
    _, shown = up.ask("GET", "/v1/runs/r1")
    assert shown["status"]["status"] == "halted"
    assert [one["severity"] for one in shown["decisions"]] == ["warn", "halt"]
    assert [run["run_id"] for run in up.ask("GET", "/v1/runs")[1]["runs"]] == ["r1"]
    assert up.ask("GET", "/v1/health")[1]["policy"] == "standard"
    assert up.stop() == 0
    assert not up.places.socket.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/turns", b"{", 422, "no JSON"),
        ("/v1/turns", b"7", 422, "[0]: is no JSON object"),
        ("/v1/turns", [call("ls", "a"), {"run_id": "r1"}], 422, "[1]."),
        ("/v1/turns", [call("ls", "a")] * 1_001, 422, "at most 1000"),
        ("/v1/turns", [call("ls", "a") | {"errors": ["x"] * 200_001}], 422, "more than 200000 values"),
        ("/v1/decide", {}, 422, "run_id: is missing"),
        ("/v1/decide", {"run_id": "a\ud800"}, 422, "run_id: not valid Unicode text"),
        ("/v1/hooks/claude", b"[]", 422, "no JSON object"),
        ("/v1/hooks/claude", {"session_id": "s"}, 422, "hook_event_name"),
        ("/v1/hooks/vim", {"session_id": "s", "hook_event_name": "Stop"}, 422, "claude"),
        ("/v1/nothing", {}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_is_recorded(
    up: Up, path: str, body: Any, status: int, words: str
) -> None:
    up.start()
    found = up.ask("POST", path, body)
    assert found[0] == status
    assert words in found[1]["error"]
    assert up.ask("GET", "/v1/runs")[1] == {"runs": []}


def test_a_run_is_found_by_the_id_that_it_was_sent_with(up: Up) -> None:
    up.start()
    run_id = "sk-ant-api03-" + "a1B2" * 20
    _, found = up.ask("POST", "/v1/turns", [call("cat x", "no such file") | {"run_id": run_id}] * 3)
    assert found["decisions"][-1]["severity"] == "halt"
    assert up.ask("POST", "/v1/decide", {"run_id": run_id})[1]["allowed"] is False
    assert up.ask("GET", f"/v1/runs/{run_id}")[1]["status"]["status"] == "halted"


def test_an_unknown_run_is_not_found(up: Up) -> None:
    up.start()
    assert up.ask("GET", "/v1/runs/nobody")[0] == 404


def test_a_second_one_says_where_the_first_is(up: Up) -> None:
    up.start()
    assert up.process is not None
    first = up.process
    second = Up(up.places.folder)
    second.start()  # the first one answers
    assert second.process is not None
    assert second.process.wait(timeout=30) == 2
    assert str(first.pid) in up.output()
    assert "another `streamproc up`" in up.output()
    assert up.listens()


def test_one_can_start_where_another_was_killed(up: Up) -> None:
    up.start()
    up.ask("POST", "/v1/turns", [call("cat x", "no such file")] * 2)
    up.kill()
    up.start()
    assert up.ask("POST", "/v1/turns", call("cat x", "no such file"))[1]["decisions"][0]["severity"] == "halt"


@pytest.mark.long
@pytest.mark.timeout(600 + 5 * KILLS)
def test_killed_at_any_moment_it_loses_nothing_and_repeats_nothing(up: Up) -> None:
    """What was acknowledged is in the log, once; a turn that is sent again changes nothing."""
    dice = random.Random(11)
    numbers = iter(range(1_000_000))
    acknowledged: list[str] = []
    lock = threading.Lock()

    def send() -> None:
        with lock:
            number = next(numbers)
        turn = call("cat x", "no such file", f"e{number}") | {"run_id": f"r{number // 4}"}
        while True:
            try:
                up.ask("POST", "/v1/turns", turn)
            except OSError:
                wait_until(up.listens, what="streamproc up is started again")
                continue  # with the same turn
            acknowledged.append(f"e{number}")
            return

    stopping = threading.Event()
    up.start()
    with ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(lambda: [send() for _ in iter(stopping.is_set, True)]) for _ in range(4)]
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.0, 0.15))
            up.kill()
            up.start()
        stopping.set()
        for one in senders:
            one.result()
    up.kill()
    log = LiveLog(up.places.log)
    stored = Counter(decode(record.value).event_id for record in log.records() if record.role == TURNS)
    assert set(acknowledged) <= set(stored)
    decided: dict[str, list[str]] = {}
    for record in log.records():
        if record.role == CONTROL:
            decided.setdefault(record.run_id, []).append(json.loads(record.value)["severity"])
    log.close()
    turns = Counter(f"r{int(event_id[1:]) // 4}" for event_id in acknowledged)
    whole = [run_id for run_id, count in turns.items() if count == 4]
    assert len(whole) > KILLS
    assert {run_id: decided[run_id] for run_id in whole} == {run_id: ["warn", "halt"] for run_id in whole}


def test_a_hundred_sessions_at_once_are_each_stopped_at_their_third_call(up: Up) -> None:
    up.start()

    def session(number: int) -> list[bool]:
        found = []
        for step in range(3):
            used = {"tool_name": "Bash", "tool_input": {"command": f"cat {number}"}, "tool_use_id": f"t{step}"}
            event = {"session_id": f"s{number}", "hook_event_name": "PostToolBatch"}
            status, answer = up.ask(
                "POST", "/v1/hooks/claude", event | {"tool_calls": [used | {"tool_response": "no"}]}
            )
            assert status == 200
            found.append(answer.get("continue") is False)
        return found

    with ThreadPoolExecutor(100) as pool:
        assert list(pool.map(session, range(100))) == [[False, False, True]] * 100


def test_what_a_tool_returns_or_is_called_cannot_change_a_terminal(up: Up) -> None:
    up.start()
    evil = "\x1b]0;title\x07\x1b[2Jcat"
    for step in range(3):
        used = {"tool_name": evil, "tool_input": {"command": evil}, "tool_use_id": f"t{step}", "tool_response": evil}
        event = {"session_id": evil, "hook_event_name": "PostToolBatch", "cwd": evil, "tool_calls": [used]}
        _, answer = up.ask("POST", "/v1/hooks/claude", event)
    assert answer["continue"] is False
    assert "\x1b" not in answer["stopReason"]
    assert "\x07" not in answer["stopReason"]
    assert "\x1b" not in up.output()


def test_the_port_needs_the_token_and_the_name_of_this_machine(up: Up) -> None:
    up.start("--listen", "127.0.0.1:0")
    address = up.output().partition("http://")[2].split()[0]
    host, _, port = address.partition(":")
    token = up.places.token.read_text().strip()
    assert up.places.token.stat().st_mode & 0o777 == 0o600

    def asked(*headers: str, name: str = f"{host}:{port}") -> int:
        with socket.create_connection((host, int(port)), timeout=20) as peer:
            lines = "".join(f"{header}\r\n" for header in (f"Host: {name}", "Connection: close", *headers))
            peer.sendall(f"GET /v1/runs HTTP/1.1\r\n{lines}\r\n".encode())
            return int(peer.recv(65536).split()[1])

    assert asked(f"Authorization: Bearer {token}") == 200
    assert asked() == 401
    assert asked(f"Authorization: Bearer {token}x") == 401
    assert asked("Authorization: Bearer é") == 401
    assert asked(f"Authorization: Bearer {token}", name=f"evil.example:{port}") in (403, 421)


@pytest.mark.parametrize("left", ["", "short\n"])
def test_a_token_of_which_a_crash_has_left_a_part_is_made_again(up: Up, left: str) -> None:
    up.places.token.write_text(left)
    token = token_of(up.places)
    assert len(token) >= 43
    assert token_of(up.places) == token
    assert up.places.token.read_text() == f"{token}\n"


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "192.0.2.1:0", "[::]:0", "example.com:80", "7"])
async def test_a_port_that_others_could_reach_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidSettings, match=r"name 127\.0\.0\.1"):
        await serve(LivePlaces(tmp_path), load_policy("standard"), LiveOptions(listen=address), lambda _: None)


@pytest.mark.parametrize("fault", [sqlite3.OperationalError("disk I/O error"), ValueError("a fault of ours")])
async def test_deadlines_are_judged_again_after_any_fault(
    tmp_path: Path, fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [fault]
    due = LiveLog.due

    def failing(stored: LiveLog, now_ms: int, limit: int) -> list[str]:
        if faults:
            raise faults.pop()
        return due(stored, now_ms, limit)

    monkeypatch.setattr(LiveLog, "due", failing)
    monkeypatch.setattr(process, "RETRY_S", 0.01)
    options = LiveOptions(idle_s=0.1)
    await asyncio.wait_for(serve(LivePlaces(tmp_path), load_policy("standard"), options, lambda _: None), 60)
    assert not faults
    assert "deadlines wait" in caplog.text


def test_other_users_reach_neither_socket_nor_files(up: Up) -> None:
    up.start()
    assert up.places.folder.stat().st_mode & 0o777 == 0o700
    assert up.places.socket.stat().st_mode & 0o077 == 0
    assert up.places.log.stat().st_mode & 0o077 == 0


def test_a_folder_with_a_long_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    made = Up(tmp_path / ("long" * 30))
    made.places.folder.mkdir(parents=True)
    try:
        made.start()
        assert made.ask("GET", "/v1/health")[0] == 200
    finally:
        made.kill()


def test_it_ends_when_nobody_needs_it(up: Up) -> None:
    up.start("--idle-exit", "0.5")
    assert up.process is not None
    assert up.process.wait(timeout=30) == 0


def test_decisions_are_sent_as_they_are_made(up: Up) -> None:
    up.start()
    with follow(up, "/v1/decisions?run=r1") as stream:
        up.ask("POST", "/v1/turns", [call("cat x", "no such file") | {"run_id": "r2"}] * 3)
        up.ask("POST", "/v1/turns", [call("cat x", "no such file")] * 3)
        found = [read_event(stream) for _ in range(2)]
    assert [(one["run_id"], one["severity"]) for _, one in found] == [("r1", "warn"), ("r1", "halt")]
    up.kill()
    up.start()
    with follow(up, "/v1/decisions", found[0][0]) as stream:  # a client that has missed the second one
        assert read_event(stream) == found[1]
    assert up.stop() == 0


@pytest.mark.parametrize("last", ["999", "9" * 5_000])
def test_a_client_that_names_a_later_position_than_there_is_gets_all_decisions(up: Up, last: str) -> None:
    """It has followed a log that was damaged, and moved aside."""
    up.start()
    decisions = up.ask("POST", "/v1/turns", [call("cat x", "no such file")] * 3)[1]["decisions"]
    with follow(up, "/v1/decisions", last) as stream:
        assert [read_event(stream)[1] for _ in decisions] == decisions


def test_it_copies_its_log_into_the_file_while_it_works(up: Up) -> None:
    up.start()
    before = up.places.log.stat().st_size
    for number in range(COMMITS_MAX):
        up.ask("POST", "/v1/turns", call("ls", f"text {number}"))
    wait_until(lambda: up.places.log.stat().st_size > before, what="the file has what was committed")
