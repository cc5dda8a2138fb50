"""Shared by the tests of `streamproc up`: its log and judge in this process, or the process itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.live.judge import Judge
from streamproc.live.places import LivePlaces
from streamproc.live.store import LiveLog
from streamproc.policy import load_policy
from tests.conftest import SERVICES
from tests.waiting import wait_until


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """Return where the log is."""
    return tmp_path / "live.db"


@pytest.fixture
def opened(log_file: Path) -> Iterator[Callable[..., tuple[Judge, LiveLog]]]:
    """Open the log as a new process does, after the one before has gone without a word."""
    logs: list[LiveLog] = []

    def again(policy: Any = "standard") -> tuple[Judge, LiveLog]:
        for log in logs:
            log.close()
        logs[:] = [LiveLog(log_file)]
        return Judge(load_policy(policy), logs[0]), logs[0]

    yield again
    for log in logs:
        log.close()


@pytest.fixture(scope="package", autouse=True)
def without_services() -> Iterator[None]:
    """Hide the broker of `make test`: `up` would send it the turns, and judge nothing itself."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SERVICES:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hooks wait for as long as a busy machine takes."""
    monkeypatch.setenv("STREAMPROC_HOOK_WAIT_S", "15")


class Up:
    """A real `streamproc up` process with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.places = LivePlaces(folder)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "streamproc", "up", "--data", str(self.places.folder), *options]
        output = (self.places.folder / "output").open("ab")
        self.process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_until(self.listens, what="streamproc up listens")

    def listens(self) -> bool:
        """Return whether it takes connections."""
        try:
            return bool(self.ask("GET", "/v1/health")[0] == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """Kill it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Stop it as a service manager does, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def output(self) -> str:
        """Return what it has printed."""
        return (self.places.folder / "output").read_text()

    def ask(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of the answer to a request."""
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(20)
        with peer:
            peer.connect(str(self.places.socket))
            data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            head = f"{verb} {path} HTTP/1.1\r\nHost: up\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
            peer.sendall(head.encode() + data)
            found = b"".join(iter(lambda: peer.recv(65536), b""))
        if not found:
            raise ConnectionError("no answer")
        head_of_answer, _, answer = found.partition(b"\r\n\r\n")
        return int(head_of_answer.split()[1]), json.loads(answer)


def kill_started(folder: Path) -> None:
    """Kill the processes that hooks have started, by the locks below a folder."""
    for lock in folder.rglob("up.lock"):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(lock.read_text()), signal.SIGKILL)


@pytest.fixture
def up() -> Iterator[Up]:
    """Return a process that is not started. Its folder has a short path: sockets need one."""
    with tempfile.TemporaryDirectory(prefix="sp-") as folder:
        made = Up(Path(folder))
        yield made
        made.kill()
        kill_started(Path(folder))


@pytest.fixture(scope="module")
def up_with_a_halt() -> Iterator[Up]:
    """Return a process that has halted one run, for tests that change nothing."""
    with tempfile.TemporaryDirectory(prefix="sp-") as folder:
        made = Up(Path(folder))
        made.start()
        made.ask("POST", "/v1/turns", [call("cat x", "no such file")] * 3)
        yield made
        made.kill()


Run = Callable[..., str]


@pytest.fixture
def run() -> Run:
    """Run a command in this process. Returns what it prints, on standard error too."""
    app = build()

    def invoke(*arguments: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, [*arguments])
        assert found.exit_code == code, found.output
        return found.output

    return invoke


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty home directory, with a short path, and nothing of this machine's in the environment."""
    for name in ("STREAMPROC_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="sp-") as folder:
        monkeypatch.setenv("HOME", folder)
        yield Path(folder)
        kill_started(Path(folder))


def call(command: str, result: Any, call_id: str = "") -> dict[str, Any]:
    """Return a turn of an agent that runs a command."""
    turn: dict[str, Any] = {
        "run_id": "r1", "node": "main",
        "tool_calls": [{"name": "Bash", "args": {"command": command}, "result": result}],
    }  # fmt: skip
    return turn | ({"event_id": call_id} if call_id else {})


def follow(up: Up, path: str, last: str = "") -> Any:
    """Return an open connection that receives events."""
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(60)
    peer.connect(str(up.places.socket))
    seen = f"Last-Event-ID: {last}\r\n" if last else ""
    peer.sendall(f"GET {path} HTTP/1.1\r\nHost: up\r\n{seen}\r\n".encode())
    stream = peer.makefile("rb")
    peer.close()
    while stream.readline().strip():  # the head
        pass
    return stream


def read_event(stream: Any) -> tuple[str, dict[str, Any]]:
    """Return the id and the data of the next event."""
    event_id = ""
    for line in stream:
        if line.startswith(b"id: "):
            event_id = line[4:].strip().decode()
        elif line.startswith(b"data: "):
            return event_id, json.loads(line[6:])
    raise AssertionError("the stream has ended")
