"""A real Apache Kafka on this machine, without Docker: fetch, start, stop, kill.

    python deploy/local/kafka.py start            # fetches the jars once, prints STREAMPROC_BROKERS=...
    python deploy/local/kafka.py status
    python deploy/local/kafka.py stop

A broker lives in a directory (``--dir``, by default ``.local/kafka/broker``): its log segments, its
``broker.log``, and ``state.json`` with the process and port. Several directories are several brokers.
``kill`` is ``kill -9``; ``start --dir DIR --port N`` brings the same log back on the same port.

Needs Java 17 or newer; Maven, to fetch; and nothing of Python but its standard library.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import string
import struct
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1] / ".local" / "kafka"
POM = HERE / "pom.xml"
TEMPLATE = HERE / "server.properties"

HOST = "127.0.0.1"
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
LOGGING = [f"-Dorg.slf4j.simpleLogger.{o}" for o in ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS")]
START_TIMEOUT_S = 60  # 2-3 s on an idle laptop; a machine busy with tests takes longer
STOP_TIMEOUT_S = 20  # a controlled shutdown takes 1-2 s
PORT_TRIES = 3  # another process may take a free port between our look and the broker's bind

INSTALL_HINT = """\
    Debian, Ubuntu   apt-get install openjdk-17-jre-headless maven
    Fedora           dnf install java-17-openjdk-headless maven
    macOS            brew install openjdk@17 maven
Or name a Kafka that runs already:  export STREAMPROC_BROKERS=host:9092"""


class KafkaUnavailableError(Exception):
    """No broker can be had here; the message says what is missing and how to get it."""


def say(line: str) -> None:
    print(f"kafka: {line}", file=sys.stderr, flush=True)


# --- what it runs on -------------------------------------------------------------------------------


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise KafkaUnavailableError(f"There is no Java here; Kafka 4 runs on 17 or newer.\n{INSTALL_HINT}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < 17:
        first = told.strip().splitlines()[:1]
        raise KafkaUnavailableError(f"{java} is too old ({first}); Kafka 4 needs 17.\n{INSTALL_HINT}")
    return java


def kafka_version() -> str:
    maven = "{http://maven.apache.org/POM/4.0.0}"
    for dependency in ET.parse(POM).iter(f"{maven}dependency"):
        if dependency.findtext(f"{maven}artifactId") == "kafka_2.13":
            return dependency.findtext(f"{maven}version", "")
    raise KafkaUnavailableError(f"{POM} names no kafka_2.13.")


def fetch_jars(home: Path = HOME) -> Path:
    """The directory with Kafka's jars, fetched through Maven the first time and after a change of the POM."""
    edition = hashlib.sha256(POM.read_bytes()).hexdigest()[:8]
    jars = home / f"jars-{kafka_version()}-{edition}"
    with only_one(home):
        if not jars.is_dir():
            unfinished = jars.with_suffix(".part")
            shutil.rmtree(unfinished, ignore_errors=True)
            _run_maven(unfinished)
            unfinished.rename(jars)  # whole or not at all
    return jars


def _run_maven(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(f"There is no Maven (mvn) here to fetch Kafka with.\n{INSTALL_HINT}")
    say(f"fetching Apache Kafka {kafka_version()} through Maven (about 45 files, 45 MB; only this once)")
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    command = [maven, "-B", "-f", str(POM), COPY_JARS, *options]
    output: list[str] = []
    fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if "Downloaded" in line and ".jar " in line:
                fetched += 1
                if fetched % 20 == 0:
                    say(f"{fetched} files fetched (Maven's own plugins among them)")
    if process.returncode:
        raise KafkaUnavailableError(f"Maven could not fetch Kafka:\n{''.join(output[-15:])}\n{INSTALL_HINT}")
    say(f"{len(list(target.glob('*.jar')))} jars are in {target.parent}")


# --- one broker in one directory -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    pid: int
    port: int


class Kind(NamedTuple):
    """What a broker is like: its server.properties, what is said to Java and at formatting, and how it is asked
    whether it answers (None: in plain text)."""

    properties: str
    java: tuple[str, ...] = ()
    format: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None


PLAIN = Kind(TEMPLATE.read_text())


class Broker:
    """The broker that lives in ``directory``. Every method may be called from any process."""

    def __init__(self, directory: Path = HOME / "broker", kind: Kind = PLAIN) -> None:
        self.directory = directory.resolve()
        self._kind = kind
        self.properties = self.directory / "server.properties"
        self.log = self.directory / "broker.log"
        self._state = self.directory / "state.json"
        self._process: subprocess.Popen[bytes] | None = None

    def running(self) -> State | None:
        """Where it runs; ``None`` if it does not, whatever a leftover state file says."""
        try:
            state = State(**json.loads(self._state.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return state if str(self.properties) in _command_line(state.pid) else None

    def start(self, port: int = 0) -> State:
        """Start it, or find it running. Returns when it answers; port 0 picks a free one."""
        java = find_java()
        classpath = f"{fetch_jars()}/*"
        with only_one(self.directory):
            state = self.running()
            if state is not None:
                if port not in (0, state.port):
                    raise KafkaUnavailableError(f"{self.directory} runs already, on port {state.port}.")
                say(f"Apache Kafka {kafka_version()} runs already on {HOST}:{state.port}")
                return state
            for tries_left in reversed(range(PORT_TRIES)):
                try:
                    return self._start([java, "-cp", classpath], port)
                except KafkaUnavailableError as problem:
                    if port or not tries_left or "Address already in use" not in str(problem):
                        raise
        raise AssertionError("unreachable")

    def stop(self) -> bool:
        """Ask it to end, make it end if it does not. False if none was running."""
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """``kill -9``, as a power cut would. What it had written stays for the next start."""
        return self._end(signal.SIGKILL)

    def _start(self, java: list[str], port: int) -> State:
        port = port or free_port()
        say(f"starting Apache Kafka {kafka_version()} on {HOST}:{port}")
        data = self.directory / "data"
        template = string.Template(self._kind.properties)
        self.properties.write_text(template.substitute(port=port, controller_port=free_port(), data=data))
        began = time.monotonic()
        with self.log.open("ab") as log:
            if not (data / "meta.properties").exists():
                self._format(java, log)
            self._process = subprocess.Popen(
                [java[0], "-Xmx768m", *LOGGING, *self._kind.java, *java[1:], "kafka.Kafka", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C of a test run must not reach it: who started it stops it
            )
        state = State(self._process.pid, port)
        self._state.write_text(json.dumps(asdict(state)))
        if not wait_for(lambda: answers(port, self._kind.tls) or self._ended(), START_TIMEOUT_S) or self._ended():
            self.kill()
            raise KafkaUnavailableError(f"Kafka did not start. The end of {self.log}:\n{self._last_lines()}")
        say(f"ready after {time.monotonic() - began:.1f} s; its log is {self.log}")
        return state

    def _format(self, java: list[str], log: IO[bytes]) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties)]
        command += self._kind.format
        if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
            raise KafkaUnavailableError(f"Kafka could not format its storage:\n{self._last_lines()}")

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


def answers(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Whether the broker answers a Metadata request (v1, no topics) and counts itself among the living."""
    body = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((HOST, port), timeout=2))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=HOST))
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(12)  # length, correlation id, number of brokers
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
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
    parser.add_argument("--dir", type=Path, default=HOME / "broker", help="where the broker lives")
    parser.add_argument("--port", type=int, default=0, help="port to start it on; 0: any free one")
    arguments = parser.parse_args()
    broker = Broker(arguments.dir)
    try:
        match arguments.command:
            case "start":
                print(f"STREAMPROC_BROKERS={HOST}:{broker.start(arguments.port).port}")
            case "stop" | "kill" as command:
                ended = broker.stop() if command == "stop" else broker.kill()
                say("ended" if ended else f"none was running in {broker.directory}")
            case "status":
                state = broker.running()
                if state is None:
                    say(f"none is running in {broker.directory}")
                    return 1
                say(f"process {state.pid} {'answers' if answers(state.port) else 'does not answer yet'}")
                print(f"STREAMPROC_BROKERS={HOST}:{state.port}")
    except KafkaUnavailableError as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
