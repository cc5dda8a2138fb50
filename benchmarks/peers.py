"""What stands beside the worker: each in a process of its own, on the same topic, checked like the worker."""

from __future__ import annotations

import subprocess
from typing import Any, Final

import orjson

from benchmarks.fleet_log import FleetLog
from benchmarks.kafka_log import make, read_all
from benchmarks.machine import ROOT
from benchmarks.table import BenchmarkDefect
from benchmarks.worker_process import Process
from benchmarks.worker_speed import Speed
from streamproc.settings import Settings

TIMEOUT_S: Final = 300.0
PYTHON: Final = ROOT / ".local" / "peers" / "bin" / "python"  # `make bench` fills this environment from peers.lock
OTHERS: Final = {"quix": "quixstreams", "bytewax": "bytewax"}
"""Packages of that environment, by the name of their row."""


def installed(name: str) -> bool:
    """Whether this machine has a peer's package."""
    command = [str(PYTHON), "-c", f"import {OTHERS[name]}"]
    return PYTHON.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


async def other_speed(settings: Settings, log: FleetLog, name: str) -> Speed:
    """Another stream processor on the whole log. Raises `BenchmarkDefect` where it decided otherwise."""
    mine = settings.model_copy(update={"group": f"{settings.topic_prefix}-{name}"})
    control = f"{mine.worker_group}-control"
    await make(mine, control)
    with Process(mine, f"benchmarks.{name}_peer", str(log.records), python=str(PYTHON)) as process:
        found = await process.answer(TIMEOUT_S)
    told: set[str] = set()
    async for records in read_all(mine, control):
        told.update(orjson.loads(record.value or b"{}")["id"] for record in records)
    if found["records"] != log.records or told != log.decisions.keys():
        raise BenchmarkDefect(
            f"{OTHERS[name]} told {len(told)} decisions of {len(log.decisions)}, in {found['records']} records"
        )
    return _speed(found)


async def raw_speed(settings: Settings, log: FleetLog, kind: str) -> Speed:
    """A plain consumer: ``decode`` is the limit, ``loop`` has the same core and keeps nothing."""
    with Process(settings, "benchmarks.raw_consumer", kind, str(log.records)) as process:
        found = await process.answer(TIMEOUT_S)
    if found["records"] != log.records:
        raise BenchmarkDefect(f"the raw consumer ({kind}) read {found['records']} records of {log.records}")
    if kind == "loop" and found["decisions"] != len(log.decisions):
        raise BenchmarkDefect(f"the plain loop made {found['decisions']} decisions, expected {len(log.decisions)}")
    return _speed(found)


async def stock_speed(settings: Settings, log: FleetLog, number: int, total: int) -> Speed:
    """A plain Faust agent on the first `total` events. Raises `BenchmarkDefect` where it decided otherwise."""
    mine = settings.model_copy(update={"group": f"{settings.topic_prefix}-stock-{number}"})
    control = f"{mine.worker_group}-control"
    await make(mine, control)
    total = min(total, log.records)
    with Process(mine, "benchmarks.stock_agent", str(total // 10), str(total)) as process:
        found = await process.answer(TIMEOUT_S)
    told: set[str] = set()
    async for records in read_all(mine, control):
        told.update(orjson.loads(record.value or b"{}")["id"] for record in records)
    reached = {int(partition): end for partition, end in found["reached"].items()}
    expected = {id_ for id_, place in log.decisions.items() if place.offset < reached.get(place.partition, 0)}
    if told != expected:
        raise BenchmarkDefect(f"the stock agent told {len(told)} decisions, expected {len(expected)}")
    return _speed(found)


def _speed(found: dict[str, Any]) -> Speed:
    return Speed(found["measured"] / found["seconds"], found["cpu_s"] / found["measured"] * 1e6)
