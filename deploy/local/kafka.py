"""A real Apache Kafka on this machine, without Docker: fetch, start, stop, kill.

    python deploy/local/kafka.py start            # fetches the jars once, prints STREAMPROC_BROKERS=...
    python deploy/local/kafka.py status
    python deploy/local/kafka.py stop

A broker lives in a directory (``--dir``, default ``.local/kafka/broker``): its log segments, its ``broker.log``,
and ``state.json`` with its process and port. Use several directories to run several brokers.
``kill`` is ``kill -9``; ``start --dir DIR --port N`` starts the same log again on the same port.

Needs Java 17 or newer, Maven for the first start, and nothing of Python but its standard library.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import shutil
import socket
import string
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for `deploy`, when this file runs as a script

from deploy.local.service import HOST, LOCAL, Service, State, UnavailableError, free_port, locked, main

if TYPE_CHECKING:
    import ssl

HOME = LOCAL / "kafka"
POM = Path(__file__).with_name("pom.xml")
TEMPLATE = Path(__file__).with_name("server.properties")

COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JAVA_OPTIONS = "KAFKA_JVM_PERFORMANCE_OPTS"  # the variable of Kafka's own scripts
LOGGING = [f"-Dorg.slf4j.simpleLogger.{o}" for o in ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS")]

INSTALL_HINT = """\
    Debian, Ubuntu   apt-get install openjdk-17-jre-headless maven
    Fedora           dnf install java-17-openjdk-headless maven
    macOS            brew install openjdk@17 maven
Or use a Kafka that is already running:  export STREAMPROC_BROKERS=host:9092"""


class KafkaUnavailableError(UnavailableError):
    """No broker can run on this machine. The message says what is missing and how to install it."""

    missing = "NO REAL KAFKA"


class Kind(NamedTuple):
    """The configuration of a broker."""

    properties: str  # the template of its server.properties
    java: tuple[str, ...] = ()  # more options for Java
    format: tuple[str, ...] = ()  # more options for formatting its storage
    tls: ssl.SSLContext | None = None  # to ask whether it answers; None: in plain text
    session_ms: int = 45_000  # after which a killed one can register again


PLAIN = Kind(TEMPLATE.read_text())
MORTAL = PLAIN._replace(session_ms=3_000)  # for who kills it and starts it again


class Broker(Service):
    """A broker with its data in ``directory``."""

    label = "kafka"
    noun = "broker"
    variable = "STREAMPROC_BROKERS"
    start_timeout_s = 60  # 2-3 s on an idle laptop, longer on a machine that runs tests
    unavailable = KafkaUnavailableError

    def __init__(self, directory: Path | None = None, kind: Kind = PLAIN) -> None:
        super().__init__(directory)
        self.properties = self.directory / "server.properties"
        self._kind = kind

    def product(self) -> str:
        return f"Apache Kafka {kafka_version()}"

    def command(self, port: int) -> list[str]:
        java = [find_java(), *os.environ.get(JAVA_OPTIONS, "").split()]
        classpath = f"{fetch_jars()}/*"
        data = self.directory / "data"
        template = string.Template(self._kind.properties)
        ports = {"port": port, "controller_port": free_port()}
        self.properties.write_text(template.substitute(ports, data=data, session_ms=self._kind.session_ms))
        if not (data / "meta.properties").exists():
            self._format([*java, "-cp", classpath])
        options = ["-Xmx768m", *LOGGING, *self._kind.java]
        return [*java, *options, "-cp", classpath, "kafka.Kafka", str(self.properties)]

    def answers(self, port: int) -> bool:
        return answers(port, self._kind.tls)

    @classmethod
    def address(cls, state: State) -> str:
        return f"{HOST}:{state.port}"

    def _format(self, java: list[str]) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties)]
        command += self._kind.format
        with self.log.open("ab") as log:
            done = subprocess.run(command, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise KafkaUnavailableError(f"Kafka could not format its storage:\n{self.last_lines()}")


def answers(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Return whether the broker answers a Metadata request (v1, no topics) and lists at least one broker."""
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


# --- Java and the jars -----------------------------------------------------------------------------


def find_java() -> str:
    """Return the Java to use: that of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise KafkaUnavailableError(f"Java is missing; Kafka 4 needs 17 or newer.\n{INSTALL_HINT}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < 17:
        first = output.strip().splitlines()[:1]
        raise KafkaUnavailableError(f"{java} is too old ({first}); Kafka 4 needs 17 or newer.\n{INSTALL_HINT}")
    return java


def kafka_version() -> str:
    """Return the version that the POM pins."""
    maven = "{http://maven.apache.org/POM/4.0.0}"
    for dependency in ET.parse(POM).iter(f"{maven}dependency"):
        if dependency.findtext(f"{maven}artifactId") == "kafka_2.13":
            return dependency.findtext(f"{maven}version", "")
    raise KafkaUnavailableError(f"{POM} does not name kafka_2.13.")


def fetch_jars(home: Path = HOME, pom: Path = POM) -> Path:
    """Return the directory with Kafka's jars. Maven fetches them once for each version of the POM."""
    edition = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    jars = home / f"jars-{kafka_version()}-{edition}"
    with locked(home):
        if not jars.is_dir():
            unfinished = jars.with_suffix(".part")
            shutil.rmtree(unfinished, ignore_errors=True)
            _run_maven(unfinished, pom)
            unfinished.rename(jars)  # all of them or none
    return jars


def _run_maven(target: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(f"Maven (mvn) is missing; it fetches Kafka.\n{INSTALL_HINT}")
    Broker.say(f"fetching Apache Kafka {kafka_version()} through Maven (about 45 files, 45 MB; first start only)")
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={target}", f"-Dkafka.version={kafka_version()}"]
    command = [maven, "-B", "-f", str(pom), COPY_JARS, *options]
    output: list[str] = []
    fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if "Downloaded" in line and ".jar " in line:
                fetched += 1
                if fetched % 20 == 0:
                    Broker.say(f"{fetched} files fetched (including Maven's own plugins)")
    if process.returncode:
        raise KafkaUnavailableError(f"Maven could not fetch Kafka:\n{''.join(output[-15:])}\n{INSTALL_HINT}")
    Broker.say(f"{len(list(target.glob('*.jar')))} jars are in {target.parent}")


if __name__ == "__main__":
    sys.exit(main(Broker, __doc__))
