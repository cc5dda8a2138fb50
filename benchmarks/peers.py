"""The peers of the worker: separate processes on the same topic, checked as the worker is."""

from __future__ import annotations

import subprocess
from typing import Any, Final

import orjson

from benchmarks.fleet_log import FleetLog
from benchmarks.kafka_log import create, read_all
from benchmarks.machine import ROOT
from benchmarks.table import BenchmarkDefect
from benchmarks.worker_process import Process
from benchmarks.worker_speed import Speed
from streamproc.settings import Settings

TIMEOUT_S: Final = 300.0
PYTHON: Final = ROOT / ".local" / "peers" / "bin" / "python"  # `make bench` creates it from peers.lock
OTHERS: Final = {"quix": "quixstreams", "bytewax": "bytewax"}
"""Packages of that environment, by the names of their rows."""


def installed(name: str) -> bool:
    """Return whether a peer's package is installed."""
    command = [str(PYTHON), "-c", f"import {OTHERS[name]}"]
    return PYTHON.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


async def other_speed(settings: Settings, log: FleetLog, name: str, number: int) -> Speed:
    """Measure another stream processor on the whole log. Raises `BenchmarkDefect` if its decisions differ."""
    own = settings.model_copy(update={"group": f"{settings.topic_prefix}-{name}-{number}"})
    control = f"{own.worker_group}-control"
    await create(own, control)
    with Process(own, f"benchmarks.{name}_peer", str(log.records), python=str(PYTHON)) as process:
        found = await process.answer(TIMEOUT_S)
    decided: set[str] = set()
    async for records in read_all(own, control):
        decided.update(orjson.loads(record.value or b"{}")["id"] for record in records)
    if found["records"] != log.records or decided != log.decisions.keys():
        raise BenchmarkDefect(
            f"{OTHERS[name]} made {len(decided)} of {len(log.decisions)} decisions, from {found['records']} records"
        )
    return _speed(found)


async def raw_speed(settings: Settings, log: FleetLog, kind: str) -> Speed:
    """Measure a plain consumer: ``decode`` is the limit, ``loop`` runs the same core and stores nothing."""
    with Process(settings, "benchmarks.raw_consumer", kind, str(log.records)) as process:
        found = await process.answer(TIMEOUT_S)
    if found["records"] != log.records:
        raise BenchmarkDefect(f"the raw consumer ({kind}) read {found['records']} records of {log.records}")
    if kind == "loop" and found["decisions"] != len(log.decisions):
        raise BenchmarkDefect(f"the plain loop made {found['decisions']} decisions, expected {len(log.decisions)}")
    return _speed(found)


async def stock_speed(settings: Settings, log: FleetLog, number: int, total: int) -> Speed:
    """Measure a plain Faust agent on the first `total` events. Raises `BenchmarkDefect` if its decisions differ."""
    own = settings.model_copy(update={"group": f"{settings.topic_prefix}-stock-{number}"})
    control = f"{own.worker_group}-control"
    await create(own, control)
    total = min(total, log.records)
    with Process(own, "benchmarks.stock_agent", str(total // 10), str(total)) as process:
        found = await process.answer(TIMEOUT_S)
    decided: set[str] = set()
    async for records in read_all(own, control):
        decided.update(orjson.loads(record.value or b"{}")["id"] for record in records)
    reached = {int(partition): end for partition, end in found["reached"].items()}
    expected = {id_ for id_, place in log.decisions.items() if place.offset < reached.get(place.partition, 0)}
    if decided != expected:
        raise BenchmarkDefect(f"the stock agent made {len(decided)} decisions, expected {len(expected)}")
    return _speed(found)


def _speed(found: dict[str, Any]) -> Speed:
    return Speed(found["measured"] / found["seconds"], found["cpu_s"] / found["measured"] * 1e6)
