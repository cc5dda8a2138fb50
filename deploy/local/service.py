"""What ``kafka.py`` and ``redis.py`` share: a server in a directory that any process can start, find, stop and kill.

The directory holds the server's data, its log, and ``state.json`` with its process and port.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCAL = Path(__file__).resolve().parents[2] / ".local"
HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # outgoing connections use higher ones: a killed server finds its port free again
PORT_TRIES = 3  # another process may bind the chosen port first
STOP_TIMEOUT_S = 20
TEMPORARY = "run-"  # run-PID: the directory of a server that process PID started for itself


class UnavailableError(Exception):
    """The server cannot run on this machine. The message says what is missing and how to install it."""

    missing: ClassVar[str] = "NO SERVICE"


@dataclass(frozen=True, slots=True)
class State:
    """Where a server runs."""

    pid: int
    port: int


class Service(ABC):
    """A server with its data in ``directory``. Any process may call any method."""

    label: ClassVar[str]  # begins each printed line; names the directory under .local
    noun: ClassVar[str]  # "broker" or "server"
    variable: ClassVar[str]  # the setting that names a running one
    start_timeout_s: ClassVar[float]
    unavailable: ClassVar[type[UnavailableError]]

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or self.home() / self.noun).resolve()
        self.log = self.directory / f"{self.noun}.log"
        self._state = self.directory / "state.json"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def home(cls) -> Path:
        """Return the directory of all servers of this kind."""
        return LOCAL / cls.label

    @classmethod
    def say(cls, line: str) -> None:
        """Print a line to stderr."""
        print(f"{cls.label}: {line}", file=sys.stderr, flush=True)

    @abstractmethod
    def product(self) -> str:
        """Return the name of the program that runs. Raises `unavailable`."""

    @abstractmethod
    def command(self, port: int) -> list[str]:
        """Prepare the directory and return the command that serves on `port`. Raises `unavailable`."""

    @abstractmethod
    def answers(self, port: int) -> bool:
        """Return whether the server on `port` answers requests."""

    @classmethod
    @abstractmethod
    def address(cls, state: State) -> str:
        """Return the value for `variable`."""

    def running(self) -> State | None:
        """Return where it runs; ``None`` if it does not, even if a state file is left over."""
        try:
            state = State(**json.loads(self._state.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        # The process number may belong to another program by now: compare the command line.
        return state if f"{self.directory}/" in _command_line(state.pid) else None

    def start(self, port: int = 0, *options: str) -> State:
        """Start it, or find it running; return once it answers. Port 0 picks a free one."""
        with locked(self.directory):
            state = self.running()
            if state is not None:
                if port not in (0, state.port):
                    raise self.unavailable(f"{self.directory} is already running, on port {state.port}.")
                self.say(f"already running on {HOST}:{state.port}")
                return state
            for tries_left in reversed(range(PORT_TRIES)):
                try:
                    return self._start(port or free_port(), options)
                except self.unavailable as problem:
                    if port or not tries_left or "Address already in use" not in str(problem):
                        raise
        raise AssertionError("unreachable")

    def stop(self) -> bool:
        """Stop it; kill it if it does not exit in time. Return whether it was running."""
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """``kill -9``, like a power cut. The next start finds the data. Return whether it was running."""
        return self._end(signal.SIGKILL)

    def _start(self, port: int, options: tuple[str, ...]) -> State:
        command = [*self.command(port), *options]
        self.say(f"starting {self.product()} on {HOST}:{port}")
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C in a test run must not reach it: the run itself stops it
            )
        state = State(self._process.pid, port)
        self._state.write_text(json.dumps(asdict(state)))
        if not wait_for(lambda: self.answers(port) or self._exited(), self.start_timeout_s) or self._exited():
            self.kill()
            raise self.unavailable(
                f"{self.label.capitalize()} did not start. The end of {self.log}:\n{self.last_lines()}"
            )
        self.say(f"ready after {time.monotonic() - began:.1f} s; log: {self.log}")
        return state

    def _exited(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _end(self, how: signal.Signals) -> bool:
        state = self.running()
        if state is not None:
            for signum in (how, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(state.pid, signum)
                if wait_for(lambda: self._exited() or self.running() is None, STOP_TIMEOUT_S):
                    break
                self.say(f"still running {STOP_TIMEOUT_S} s after {signum.name}")
        self._state.unlink(missing_ok=True)
        return state is not None

    def last_lines(self, count: int = 20) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


@contextlib.contextmanager
def temporary(kind: type[Service]) -> Iterator[State]:
    """Run an empty server for the length of a `with` block, then remove it."""
    sweep(kind)
    service = kind(kind.home() / f"{TEMPORARY}{os.getpid()}")
    try:
        yield service.start()
    finally:
        if service.stop():
            service.say("stopped")
            shutil.rmtree(service.directory, ignore_errors=True)


def sweep(kind: type[Service]) -> None:
    """Kill and remove temporary servers that outlived the process that started them."""
    for directory in kind.home().glob(f"{TEMPORARY}*"):
        try:
            os.kill(int(directory.name.removeprefix(TEMPORARY)), 0)
        except ProcessLookupError:
            kind(directory).kill()
            shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    """Return a port that nothing listens on, picked at random."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll `condition`; return whether it came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Create `directory` and keep other processes out of it for the length of a `with` block."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _command_line(pid: int) -> str:
    """Return how ``pid`` was started; empty if it no longer exists."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(ps, capture_output=True, text=True, check=False).stdout


def main(kind: type[Service], description: str | None) -> int:
    """Run the command line of `kind`; return the exit code."""
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=verbatim)
    parser.add_argument("command", choices=["start", "stop", "kill", "status"])
    parser.add_argument("--dir", type=Path, help=f"its directory (default: .local/{kind.label}/{kind.noun})")
    parser.add_argument("--port", type=int, default=0, help="port to start on (0: any free one)")
    arguments = parser.parse_args()
    service = kind(arguments.dir)
    try:
        match arguments.command:
            case "start":
                print(f"{kind.variable}={kind.address(service.start(arguments.port))}")
            case "stop" | "kill" as command:
                ended = service.stop() if command == "stop" else service.kill()
                sweep(kind)
                service.say("stopped" if ended else f"no {kind.noun} is running in {service.directory}")
            case "status":
                state = service.running()
                if state is None:
                    service.say(f"no {kind.noun} is running in {service.directory}")
                    return 1
                answer = "answers" if service.answers(state.port) else "does not answer yet"
                service.say(f"process {state.pid} {answer}")
                print(f"{kind.variable}={kind.address(state)}")
    except UnavailableError as problem:
        service.say(str(problem))
        return 1
    return 0
