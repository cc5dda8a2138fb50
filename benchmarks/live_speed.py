"""`streamproc up`: how soon it listens, what it takes when idle, turns/s, and what a hook costs a session.

The command of a hook is timed beside `/bin/true` and a Python that does nothing: what starting any program costs here.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from streamproc.live.hook_settings import HOOK_FILE
from streamproc.live.places import LivePlaces

BATCH: Final = 250  # turns of a request
SESSIONS: Final = 50
SETTLE_S: Final = 1.0  # until what starting has taken is given back
WAIT_S: Final = 30.0


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of `streamproc up`."""
    requests, commands = max(20, sizes.probes), max(10, sizes.probes // 5)
    with tempfile.TemporaryDirectory(prefix="sp-") as folder, _running(Path(folder)) as (places, process, start_s):
        yield Row("live.start", "`streamproc up`: start until it listens", start_s, "s", aim=Aim("≤", 1.0))
        time.sleep(SETTLE_S)
        yield Row("live.idle", "`streamproc up`: memory when idle", _mib(process.pid), "MiB", aim=Aim("≤", 60.0))
        with _Requests(places.socket) as asked:
            batches = max(1, sizes.log_turns // 12 // BATCH)
            began = time.perf_counter()
            for number in range(batches):
                found = asked("/v1/turns", [_turn(number, place) for place in range(BATCH)])
                if found["accepted"] != BATCH:
                    raise BenchmarkDefect(f"{found['accepted']} of {BATCH} turns were accepted")
            speed = batches * BATCH / (time.perf_counter() - began)
            yield Row("live.turns", "`streamproc up`: turns over HTTP, stored", speed, "turns/s", aim=Aim("≥", 10_000))
            times = sorted(
                _ms(lambda number=number: asked("/v1/hooks/claude", _event(number))) for number in range(requests)
            )
            yield Row("live.hook.p50", "hook, at the server, median", statistics.median(times), "ms")
            yield Row("live.hook.p99", "hook, at the server, 99th percentile", _p99(times), "ms", aim=Aim("≤", 5.0))
        command = [sys.executable, "-I", "-S", str(HOOK_FILE), "claude", str(places.socket)]
        hooks, nothing, python = [], [], []
        for number in range(commands):  # in turn: all have the same load beside them
            hooks.append(_ms(lambda number=number: _run(command, json.dumps(_event(number)).encode())))
            nothing.append(_ms(lambda: _run([shutil.which("true") or "/bin/true"], b"")))
            python.append(_ms(lambda: _run([sys.executable, "-I", "-S", "-c", "pass"], b"")))
        if places.faults.exists():
            raise BenchmarkDefect(f"a hook was not answered: {places.faults.read_text()}")
        beside, figure = statistics.median(nothing), statistics.median(hooks)
        yield Row("live.command.p50", "hook, its command, median", figure, "ms", "/bin/true", beside)
        slow, idle = _p99(sorted(hooks)), _p99(sorted(python))
        yield Row("live.command.p99", "hook, its command, 99th percentile", slow, "ms", aim=Aim("≤", 25.0))
        yield Row("live.python.p99", "Python that does nothing, 99th percentile", idle, "ms")


@contextmanager
def _running(folder: Path) -> Iterator[tuple[LivePlaces, subprocess.Popen[bytes], float]]:
    """Start a process as a hook does, and yield it with the seconds until it listened."""
    places = LivePlaces(folder)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "streamproc.live", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not places.socket.exists():
            if time.perf_counter() - began > WAIT_S or process.poll() is not None:
                raise BenchmarkDefect("streamproc up does not listen")
            time.sleep(0.002)
        yield places, process, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


class _Requests:
    """Requests over one connection."""

    def __init__(self, path: Path) -> None:
        self._peer = socket.socket(socket.AF_UNIX)
        self._peer.connect(str(path))

    def __enter__(self) -> _Requests:
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()

    def __call__(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        self._peer.sendall(f"POST {path} HTTP/1.1\r\nHost: up\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        found = b""
        while b"\r\n\r\n" not in found:
            found += self._peer.recv(1 << 20)
        head, _, answer = found.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchmarkDefect(found[:300].decode())
        size = int(head.lower().partition(b"content-length: ")[2].split()[0])
        while len(answer) < size:
            answer += self._peer.recv(1 << 20)
        return json.loads(answer)


def _turn(batch: int, place: int) -> dict[str, Any]:
    number = batch * BATCH + place
    made = {"name": "Bash", "args": {"command": f"cat {number}"}, "result": f"line {number * 7} of the file\n" * 5}
    return {
        "run_id": f"r{batch % 10}",
        "node": "main",
        "output": f"Step {number}: I look further.",
        "tool_calls": [made],
    }


def _event(number: int) -> dict[str, Any]:
    used = {"tool_name": "Bash", "tool_input": {"command": f"ls {number}"}, "tool_use_id": f"t{number}"}
    answer = {"stdout": f"file-{number}.txt\n" * 50, "stderr": ""}
    return {
        "session_id": f"s{number % SESSIONS}", "hook_event_name": "PostToolBatch", "cwd": "/srv/app",
        "tool_calls": [used | {"tool_response": answer}],
    }  # fmt: skip


def _run(command: list[str], event: bytes) -> None:
    subprocess.run(command, input=event, stdout=subprocess.DEVNULL, check=True)


def _ms(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000


def _p99(times: list[float]) -> float:
    return times[min(len(times) - 1, int(len(times) * 0.99))]


def _mib(pid: int) -> float:
    """Return the memory that a process has in use."""
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(told.stdout) / 1024
