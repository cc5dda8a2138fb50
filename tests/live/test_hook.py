"""The hook's program: it passes an event on, and whatever goes wrong, the session goes on."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streamproc.live.hook_settings import HOOK_FILE, hook_command
from streamproc.live.places import LivePlaces
from tests.live.conftest import Up
from tests.waiting import wait_until

SLOW_S = 30.0


def hook(up: Up, event: Any, cli: str = "claude", **more: str) -> subprocess.CompletedProcess[str]:
    """Run the hook as a CLI does."""
    command = [sys.executable, "-I", "-S", str(HOOK_FILE), cli, str(up.places.socket)]
    text = event if isinstance(event, str) else json.dumps(event)
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, env=os.environ | more, timeout=SLOW_S
    )


def batch(number: int, answer: str = "no such file") -> dict[str, Any]:
    used = {"tool_name": "Bash", "tool_input": {"command": "cat x"}, "tool_use_id": f"t{number}"}
    return {
        "session_id": "s1", "hook_event_name": "PostToolBatch", "cwd": "/srv/app",
        "tool_calls": [used | {"tool_response": answer}],
    }  # fmt: skip


def test_a_stuck_session_is_stopped_and_told_why(up: Up) -> None:
    up.start()
    told = [hook(up, batch(number)).stdout for number in range(3)]
    assert told[0] == ""
    context = json.loads(told[1])["hookSpecificOutput"]
    assert context["hookEventName"] == "PostToolBatch"
    assert "LOOP003" in context["additionalContext"]
    stop = json.loads(told[2])
    assert stop["continue"] is False
    assert "LOOP003" in stop["stopReason"]
    assert not up.places.faults.exists()


def test_a_hook_starts_the_process_if_there_is_none(up: Up) -> None:
    try:
        assert hook(up, batch(0)).stdout == ""
        assert up.ask("GET", "/v1/sessions")[1]["sessions"][0]["session_id"] == "s1"
        assert not up.places.faults.exists()
    finally:
        subprocess.run(["kill", up.places.lock.read_text().strip()], check=True)


def test_of_hooks_that_start_the_process_at_once_one_does(up: Up) -> None:
    try:
        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda number: hook(up, batch(0) | {"session_id": f"s{number}"}), range(3)))
        assert [(one.stdout, one.stderr) for one in done] == [("", "")] * 3
        wait_until(up.listens, what="streamproc up listens")
        assert "Traceback" not in up.places.output.read_text()
    finally:
        subprocess.run(["kill", up.places.lock.read_text().strip()], check=True)


def test_a_hook_whose_socket_is_elsewhere_uses_the_folder_of_the_files(home: Path) -> None:
    places = LivePlaces(home / ("long" * 30))
    places.make()
    assert places.socket.parent != places.folder
    command = shlex.split(hook_command("claude", places.socket, places.folder))
    refused = [*command[:-2], str(home), command[-1]]  # no socket at all
    try:
        for arguments, told, wait_s in ((command, json.dumps(batch(0)), "15"), (refused, "{}", "1")):
            environ = os.environ | {"STREAMPROC_HOOK_WAIT_S": wait_s}
            done = subprocess.run(
                arguments, input=told, capture_output=True, text=True, check=True, timeout=SLOW_S, env=environ
            )
            assert (done.stdout, done.stderr) == ("", "")
        wait_until(places.log.exists, what="the log of streamproc up")
        assert " claude " in places.faults.read_text().splitlines()[-1]
        wait_until(places.socket.exists, what="the socket of streamproc up")
        assert list(places.socket.parent.iterdir()) == [places.socket]
    finally:
        subprocess.run(["kill", places.lock.read_text().strip()], check=True)


def test_a_folder_named_like_us_in_a_repository_is_not_run(up: Up, tmp_path: Path) -> None:
    (tmp_path / "streamproc").mkdir()
    (tmp_path / "streamproc" / "__init__.py").write_text("open('/dev/stderr', 'w').write('hostile')\n")
    (tmp_path / "json.py").write_text("hostile")
    command = [sys.executable, "-I", "-S", str(HOOK_FILE), "claude", str(up.places.socket)]
    try:
        done = subprocess.run(
            command, input=json.dumps(batch(0)), capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert (done.stdout, done.stderr) == ("", "")
        assert "hostile" not in up.places.output.read_text()
        assert up.listens()
    finally:
        subprocess.run(["kill", up.places.lock.read_text().strip()], check=True)


def test_what_a_project_puts_on_the_path_of_python_is_not_run(up: Up, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("open('/dev/stderr', 'w').write('hostile')\n")
    command = [sys.executable, "-I", "-S", str(HOOK_FILE), "claude", str(up.places.socket)]
    try:
        subprocess.run(
            command, input=json.dumps(batch(0)), capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert "hostile" not in up.places.output.read_text()
        assert up.listens()
    finally:
        subprocess.run(["kill", up.places.lock.read_text().strip()], check=True)


def test_the_environment_of_a_project_turns_no_detector_off(up: Up, tmp_path: Path) -> None:
    lenient = tmp_path / "lenient.yaml"
    lenient.write_text("name: lenient\nversion: 1\npresets: [standard]\ndetectors: {LOOP003: false, LOOP009: false}\n")
    project = {"STREAMPROC_POLICY": str(lenient), "STREAMPROC_HOOK_WAIT_S": "9" * 23}
    try:
        told = [hook(up, batch(number), **project).stdout for number in range(3)]
        assert json.loads(told[2])["continue"] is False
        assert not up.places.faults.exists()
    finally:
        subprocess.run(["kill", up.places.lock.read_text().strip()], check=True)
    wait_until(lambda: not up.listens(), what="the end of the process")
    (up.places.folder / "settings.env").write_text(f"STREAMPROC_POLICY={lenient}\n")  # which its user writes
    try:
        assert [hook(up, batch(number) | {"session_id": "s2"}).stdout for number in range(3)] == ["", "", ""]
    finally:
        subprocess.run(["kill", up.places.lock.read_text().strip()], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_socket_in_a_folder_of_another_user_gets_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(folder / "up.sock"))
        theirs.listen()
        os.chown(folder, 65_534, 65_534)
        command = [sys.executable, "-I", "-S", str(HOOK_FILE), "claude", str(folder / "up.sock"), str(tmp_path)]
        done = subprocess.run(command, input=json.dumps(batch(0)), capture_output=True, text=True, check=True)
        theirs.settimeout(0.1)
        with pytest.raises(TimeoutError):
            theirs.accept()
    assert done.stdout == ""
    assert "belongs to another user" in (tmp_path / "unprotected.log").read_text()


def test_an_event_that_is_refused_leaves_a_line_and_stops_nothing(up: Up) -> None:
    up.start()
    done = hook(up, "no JSON")
    assert (done.stdout, done.stderr) == ("", "")
    [line] = up.places.faults.read_text().splitlines()
    assert " claude answer: " in line
    assert "no JSON" in line


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 500 Oops\r\n\r\n{}", b"nonsense", None])
def test_a_server_that_answers_badly_or_never_stops_nothing(up: Up, answer: bytes | None) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(up.places.socket))
    listening.listen()

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            if answer is not None:
                peer.recv(65536)
                peer.sendall(answer)
            else:
                while peer.recv(65536):  # until the hook gives up
                    pass

    serving = threading.Thread(target=serve)
    serving.start()
    done = hook(up, batch(0), STREAMPROC_HOOK_WAIT_S="1")
    serving.join()
    listening.close()
    assert (done.stdout, done.stderr) == ("", "")
    assert len(up.places.faults.read_text().splitlines()) == 1


def test_a_large_event_and_one_with_any_characters_pass(up: Up) -> None:
    up.start()
    for number, answer in enumerate(("x" * 5_000_000, "\x1b[31m\x00\ud800 é", "")):
        assert hook(up, json.dumps(batch(number, answer))).stdout == ""
    assert not up.places.faults.exists()


def test_codex_is_interrupted_after_it_was_denied(up: Up, tmp_path: Path) -> None:
    """A program named `codex` stands for the CLI: it is interrupted, and nothing else is."""
    up.start()
    used = {"tool_name": "Bash", "tool_input": {"command": "cat x"}, "session_id": "s2", "cwd": "/srv/app"}
    for number in range(3):
        told = used | {"hook_event_name": "PostToolUse", "tool_use_id": f"c{number}", "tool_response": "no"}
        last = hook(up, told, "codex").stdout
    assert "LOOP003" in json.loads(last)["hookSpecificOutput"]["additionalContext"]
    before = used | {"hook_event_name": "PreToolUse", "tool_use_id": "c9"}
    denied = json.loads(hook(up, before, "codex").stdout)["hookSpecificOutput"]
    assert denied["permissionDecision"] == "deny"
    (tmp_path / "codex").symlink_to(Path(sys.executable).resolve())
    hooked = [sys.executable, "-I", "-S", str(HOOK_FILE), "codex", str(up.places.socket)]
    script = (  # not a shell: it cannot catch a signal that its parent ignores
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        f"subprocess.run({hooked!r}, input={json.dumps(before)!r}, text=True)\n"
    )
    done = subprocess.run([str(tmp_path / "codex"), "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 130
    assert b"deny" in done.stdout


def test_a_tag_names_the_sessions_of_a_run(up: Up) -> None:
    up.start()
    hook(up, batch(0), STREAMPROC_PROTECT_TAG="abc")
    hook(up, batch(1) | {"session_id": "other"})
    [found] = up.ask("GET", "/v1/sessions?tag=abc")[1]["sessions"]
    assert found["session_id"] == "s1"


@pytest.mark.parametrize("sent", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{\"continue\": fal",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnope!",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", None,
])  # fmt: skip
def test_an_answer_that_is_broken_off_or_drips_is_none(up: Up, sent: bytes | None) -> None:
    up.places.make()
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(up.places.socket))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, suppress(BrokenPipeError, ConnectionResetError):
                peer.recv(65536)
                if sent is not None:
                    peer.sendall(sent)
                while sent is None:  # one byte after the other
                    peer.sendall(b"H")
                    time.sleep(0.1)

        served = pool.submit(serve)
        began = time.monotonic()
        assert hook(up, batch(0), STREAMPROC_HOOK_WAIT_S="1").stdout == ""
        assert time.monotonic() - began < SLOW_S / 2
        served.result(SLOW_S)
    assert " claude " in up.places.faults.read_text()
