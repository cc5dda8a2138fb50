"""Run a real worker, or another command, as a separate process configured through its environment."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from benchmarks.machine import ROOT
from benchmarks.table import BenchmarkDefect
from streamproc.settings import Settings

STOP_TIMEOUT_S = 60
WORKER = ("streamproc", "worker")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Process:
    """A command with our settings. Stops with SIGTERM; an error shows the end of its stderr."""

    def __init__(
        self,
        settings: Settings,
        *command: str,
        python: str = sys.executable,
        checkout: str = str(ROOT),
        **environment: str,
    ) -> None:
        self._checkout = checkout
        self._command = [python, "-m", *command]
        self._killed = False
        self._files = tempfile.TemporaryDirectory(prefix="streamproc-bench-")
        self._environment = os.environ | {
            "STREAMPROC_BROKERS": settings.brokers,
            "STREAMPROC_TOPIC_PREFIX": settings.topic_prefix,
            "STREAMPROC_GROUP": settings.worker_group,
            "STREAMPROC_PARTITIONS": str(settings.partitions),
            "STREAMPROC_POLICY": "standard",
            "STREAMPROC_INSTANCE": settings.instance,
            "STREAMPROC_SESSION_TIMEOUT_S": str(settings.session_timeout_s),
            "STREAMPROC_DATADIR": self._files.name,
            **environment,
        }

    def __enter__(self) -> Self:
        self._stderr = Path(self._files.name, "stderr").open("w+b")
        self._answer = Path(self._files.name, "stdout").open("w+b")
        self._process = subprocess.Popen(
            self._command, cwd=self._checkout, env=self._environment, stdout=self._answer, stderr=self._stderr
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        output = self.stderr()
        self._stderr.close()
        self._answer.close()
        self._files.cleanup()
        if code and error is None and not self._killed:
            raise BenchmarkDefect(f"{' '.join(self._command[1:])} exited with {code}:\n{output}")

    def check(self) -> None:
        """Raise `BenchmarkDefect` if it has exited."""
        code = self._process.poll()
        if code is not None:
            raise BenchmarkDefect(f"{' '.join(self._command[1:])} exited with {code}:\n{self.stderr()}")

    def kill(self) -> float:
        """``kill -9``; return the time on the monotonic clock."""
        self._killed = True
        self._process.kill()
        return time.monotonic()

    async def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for its exit and return the JSON that it printed last. Raises `BenchmarkDefect` if it printed none."""
        async with asyncio.timeout(timeout_s):
            while self._process.poll() is None:
                await asyncio.sleep(0.05)
        self._answer.seek(0)
        printed = self._answer.read().strip().splitlines()
        if self._process.returncode or not printed:
            raise BenchmarkDefect(f"{' '.join(self._command[1:])} exited without an answer:\n{self.stderr()}")
        found: dict[str, Any] = orjson.loads(printed[-1])
        return found

    def printed(self) -> str:
        """Return what it has printed so far."""
        return Path(self._answer.name).read_text("utf-8", "replace")

    def stderr(self) -> str:
        """Return the end of its standard error."""
        self._stderr.seek(0)
        return self._stderr.read()[-4_000:].decode("utf-8", "replace")

    def pause(self) -> None:
        """Freeze it."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a pause."""
        self._process.send_signal(signal.SIGCONT)

    def peak_bytes(self) -> int:
        """Return its peak resident memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def cpu_s(self) -> float:
        """Return its processor time so far, in seconds."""
        return cpu_s(self._process.pid)


class Group:
    """Several processes, of which `worker_speed` asks what it asks of one."""

    def __init__(self, members: list[Process]) -> None:
        self.members = members

    def check(self) -> None:
        """Raise `BenchmarkDefect` if one has exited."""
        for member in self.members:
            member.check()

    def stderr(self) -> str:
        """Return the ends of their standard errors."""
        return "\n".join(member.stderr() for member in self.members)

    def cpu_s(self) -> float:
        """Return the processor time of all so far, in seconds."""
        return sum(member.cpu_s() for member in self.members)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


def worker(settings: Settings, **environment: str) -> Process:
    """Return the product's worker."""
    return Process(settings, *WORKER, **environment)
