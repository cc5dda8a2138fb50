"""The containers of docker-compose.yml under a project of their own, and what people ask of them and do to them."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiokafka.partitioner import murmur2

from deploy.containers.engine import Engine
from deploy.local.service import wait_for

PROJECT: Final = "streamproc-check"  # containers, volumes and networks of `streamproc` belong to a user
IMAGE: Final = "streamproc:0.1.0"
AGENT: Final = Path(__file__).with_name("agent.py")
PARTITIONS: Final = 4  # of the topic of turns: the default
HEALTHY_S: Final = 180  # Kafka is asked every 30 s
READY_S: Final = 90  # half of what a worker that hangs would take
CONTROL: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # compose clears lines also where there is no terminal
ASK_READY: Final = ("python", "/opt/streamproc/healthcheck.py")
HARDENED: Final = (
    "grep -q '^CapEff:.*0000000000000000' /proc/1/status && grep -q '^NoNewPrivs:.*1' /proc/1/status "
    "&& ! touch /written 2> /dev/null"
)


class ScenarioError(Exception):
    """Something does not work. The message says what, and what was seen instead."""


class Stack:
    """The project, on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.agents: list[str] = []
        self.profile: tuple[str, ...] = ()

    def docker(self, *words: str, given: str = "", expect: int | None = 0) -> str:
        """Run a docker command; return its output. Raises `ScenarioError` for another exit code than expected."""
        done = self._engine.run("docker", *words, given=given)
        if expect is not None and done.returncode != expect:
            raise ScenarioError(f"docker {' '.join(words)} exited with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def compose(self, *words: str, given: str = "", expect: int | None = 0) -> str:
        """Do the same with a command of compose."""
        return self.docker(
            "compose", "--ansi", "never", "--project-name", PROJECT, *self.profile, *words, given=given, expect=expect
        )

    def image(self, *words: str, entrypoint: str = "streamproc", expect: int | None = 0) -> str:
        """Run a command in a container of the image, without a network."""
        options = ("--rm", "--network", "none", "--no-healthcheck", "--entrypoint", entrypoint)
        return self.docker("run", *options, IMAGE, *words, expect=expect)

    def shell(self, service: str, script: str, what: str) -> str:
        """Run a shell script in the container of a service. Raises `ScenarioError` saying `what` if it fails."""
        done = self._engine.run("docker", "exec", container(service), "sh", "-c", script)
        if done.returncode:
            raise ScenarioError(f"{service}: {what} (exit code {done.returncode}) {done.stdout[-1000:]}")
        return done.stdout

    def streamproc(self, *words: str, service: str = "worker-1") -> str:
        """Run a command of streamproc beside a worker, as people do."""
        return self.compose("exec", "--no-TTY", service, "streamproc", *words)

    def state(self, service: str) -> dict[str, Any]:
        """Return the state of the container of a service; empty if there is none."""
        found = self._engine.run("docker", "inspect", "--format", "{{json .State}}", container(service))
        return dict(json.loads(found.stdout)) if found.returncode == 0 else {}

    def health(self, service: str) -> str:
        """Return what the health check of a service says."""
        return str(self.state(service).get("Health", {}).get("Status", "none"))

    def healthy(self, *services: str) -> None:
        """Wait until their health checks say so."""
        for service in services:
            wait(partial(self._is_healthy, service), HEALTHY_S, f"{service} to be healthy")

    def _is_healthy(self, service: str) -> bool:
        return self.health(service) == "healthy"

    def ready(self, *workers: str) -> None:
        """Wait until workers say that they work, whatever the health checks have seen."""
        for worker in workers:
            wait(partial(self._is_ready, worker), READY_S, f"{worker} to be ready, by its own word")

    def _is_ready(self, worker: str) -> bool:
        return "ready" in self.docker("exec", container(worker), *ASK_READY, expect=None).splitlines()

    def halted(self) -> None:
        """Let agents loop, one in each partition, until all are halted."""
        names = [self._new_agent(partition) for partition in range(PARTITIONS)]
        self.docker(
            "run", "--rm", "--interactive", "--no-healthcheck", "--network", f"{PROJECT}_default", "--read-only",
            "--cap-drop", "ALL", "--tmpfs", "/tmp", "--env", "STREAMPROC_BROKERS=kafka:9092",
            "--entrypoint", "python", IMAGE, "-", *names, given=AGENT.read_text(),
        )  # fmt: skip

    def _new_agent(self, partition: int) -> str:
        """Return a new name of a run that is at home in a partition."""
        numbers = itertools.count(len(self.agents) + 1)
        names = (f"agent-{number}" for number in numbers)
        name = next(one for one in names if one not in self.agents and partition_of(one) == partition)
        self.agents.append(name)
        return name

    def kill(self, service: str) -> None:
        """`kill -9` its first process, from outside: Docker restarts what it did not stop itself."""
        pid = str(self.state(service)["Pid"])
        self.docker("run", "--rm", "--no-healthcheck", "--pid", "host", "--user", "0", "--entrypoint", "sh", IMAGE,
                    "-c", f"kill -9 {pid}")  # fmt: skip
        wait(lambda: self.state(service).get("Pid") not in (int(pid), 0), 30, f"{service} to start again")

    def log(self, *options: str) -> list[str]:
        """Return the lines that all services have logged, each after the name of its container."""
        return CONTROL.sub("", self.compose("logs", "--no-color", *options)).splitlines()

    def remove(self) -> None:
        """Remove containers, networks and volumes."""
        self.profile = ("--profile", "observe")
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "30", expect=None)


def partition_of(run_id: str) -> int:
    """Return the partition of a run, by Kafka's hash of its key."""
    return int(murmur2(run_id.encode()) & 0x7FFFFFFF) % PARTITIONS


def container(service: str) -> str:
    """Return the name of the container of a service."""
    return f"{PROJECT}-{service}-1"


def wait(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds. Raises `ScenarioError` otherwise."""

    def holds() -> bool:
        found = condition()
        if not found:
            time.sleep(0.5)
        return found

    if not wait_for(holds, timeout_s):
        raise ScenarioError(f"waited {timeout_s:g} s for {what}")


def expect(condition: object, what: str, seen: object = "") -> None:
    """Raise `ScenarioError` unless the condition is true."""
    if not condition:
        raise ScenarioError(f"{what}: {seen}" if seen != "" else what)


def matching(lines: Iterable[str], words: Iterable[str]) -> list[str]:
    """Return the lines that hold one of these words."""
    found = tuple(words)
    return [line for line in lines if any(word in line for word in found)]
