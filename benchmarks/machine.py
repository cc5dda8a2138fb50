"""The machine and the software that the figures depend on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

from deploy.local import kafka, service
from streamproc.core.compiled import core_kind

ROOT: Final = Path(__file__).parents[1]


BUSY: Final = 0.5  # load per core before the benchmark


def busy_note() -> str:
    """Return a note if the machine is busy: its figures are then imprecise, its ratios less so."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f" **The machine was busy** (load {load:.1f} on {cores} cores)." if load > BUSY * cores else ""


def header(brokers: str | None, how: str) -> list[str]:
    """Return the lines above the table. `brokers` is the address of the Kafka, or None."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("aiokafka", "faust-streaming", "msgspec"))
    return [
        f"Machine: {_cpu()}, {os.cpu_count()} cores, {_memory()}, {platform.system()} {platform.release()}.",
        f"Software: Python {platform.python_version()}, core={core_kind()}, {packages}; "
        + (f"{_kafka(brokers)}." if brokers else "no Kafka."),
        f"Commit: {_commit()}. {how}",
    ]


def _cpu() -> str:
    details = _proc("cpuinfo")
    found: dict[str, str] = {}
    for line in details:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    name = found.get("model name") or platform.processor() or platform.machine()
    return f"{name} (family {found['cpu family']}, model {found['model']})" if "cpu family" in found else name


def _memory() -> str:
    for line in _proc("meminfo"):
        if line.startswith("MemTotal:"):
            return f"{int(line.split()[1]) / 2**20:.0f} GiB"
    return "memory unknown"


def _proc(name: str) -> list[str]:
    try:
        return Path("/proc", name).read_text("utf-8").splitlines()
    except OSError:
        return []


def _kafka(brokers: str) -> str:
    """Describe the Kafka. Brokers do not report a version; that of brokers started by deploy/local is known."""
    if broker_pid(brokers) is not None:
        return f"Apache Kafka {kafka.kafka_version()} on the same machine"
    return f"the Kafka at {brokers}"


def broker_pid(brokers: str) -> int | None:
    """Return the process of a broker that deploy/local started; None for any other."""
    for directory in kafka.HOME.glob("*/state.json"):
        state = kafka.Broker(directory.parent).running()
        if state is not None and f"{service.HOST}:{state.port}" == brokers:
            return state.pid
    return None


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "streamproc", "benchmarks")
        return git("rev-parse", "--short", "HEAD") + (" with local changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
