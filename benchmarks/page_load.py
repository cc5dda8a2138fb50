"""The records of a fleet that a page shows: a status and a decision of each run, and then so many a second.

Decisions, statuses and turns are those of a real run, with other names. The load runs in a process of its own, until it
has sent what it was asked to.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2

from benchmarks.table import BenchmarkDefect
from benchmarks.traces import sample_runs
from streamproc.core.decision import Decision
from streamproc.core.run_state import RunState
from streamproc.core.status import encode_status
from streamproc.kafka.options import connection_options
from streamproc.model import wire
from streamproc.model.controls import RunStatus
from streamproc.policy import load_policy
from streamproc.settings import Settings, load_settings
from streamproc.worker.publishing import control_record

TICK_S: Final = 0.02
BATCH_BYTES: Final = 262_144


class _Stuck(NamedTuple):
    """What a stuck run leaves behind."""

    decision: Decision
    status: RunStatus
    turn: wire.Turn


@lru_cache(maxsize=1)
def _stuck() -> _Stuck:
    for run in sample_runs():
        engine, state = load_policy().engine(), RunState()
        for offset, (event, at_ms) in enumerate(run):
            for decision in engine.step(state, event, at_ms, offset).decisions:
                if decision.severity == "halt" and type(event) is wire.Turn:
                    return _Stuck(decision, engine.status(state, event.run_id, decision), event)
    raise BenchmarkDefect("no sample is halted")


class _Sender:
    """Sends records of runs, each to the partition of its run."""

    def __init__(self, settings: Settings, producer: AIOKafkaProducer) -> None:
        self._settings = settings
        self._producer = producer
        self._number = 0

    async def decided(self, run: int, severity: str) -> None:
        """Send a decision about a run, and its status."""
        self._number += 1
        stuck, run_id, offset = _stuck(), f"run-{run}", self._number
        replace = msgspec.structs.replace
        partition = (murmur2(run_id.encode()) & 0x7FFFFFFF) % self._settings.partitions
        assert stuck.decision.trigger is not None
        decision = replace(
            stuck.decision, id=f"{time.time_ns():032x}", run_id=run_id, severity=severity, workflow=f"w{run % 20}",
            tenant=f"t{run % 50}", user=f"u{run % 500}",
            trigger=replace(stuck.decision.trigger, topic="turns", partition=partition, offset=offset),
        )  # fmt: skip
        status = replace(
            stuck.status, run_id=run_id, status="halted" if severity == "halt" else "running", severity=severity,
            workflow=decision.workflow, tenant=decision.tenant, user=decision.user, turns=offset, partition=partition,
            offset=offset, halt=decision if severity == "halt" else None,
        )  # fmt: skip
        record = control_record(run_id.encode(), decision)
        await self._send("control", run_id, record.value, partition)
        await self._send("runs", run_id, encode_status(status), partition)

    async def turn(self, run: int) -> None:
        """Send a turn of a run."""
        self._number += 1
        run_id = f"run-{run}"
        turn = msgspec.structs.replace(_stuck().turn, run_id=run_id, event_id=f"{run_id}/{self._number}", at=None)
        partition = (murmur2(run_id.encode()) & 0x7FFFFFFF) % self._settings.partitions
        await self._send("turns", run_id, wire.encode(turn), partition)

    async def _send(self, role: str, run_id: str, value: bytes, partition: int) -> None:
        await self._producer.send(self._settings.topic(role), value, key=run_id.encode(), partition=partition)


def _severity(run: int) -> str:
    return ("halt", "warn", "info", "info", "info")[run % 5]


async def history(settings: Settings, runs: int) -> None:
    """Write what the topics hold when a page starts: of each run a decision, a status and five turns."""
    await _all(settings, ((run, _severity(run), 5) for run in range(runs)))


async def _all(settings: Settings, wanted: Iterable[tuple[int, str, int]]) -> None:
    producer = AIOKafkaProducer(**connection_options(settings), linger_ms=5, max_batch_size=BATCH_BYTES)
    await producer.start()
    try:
        sender = _Sender(settings, producer)
        for run, severity, turns in wanted:
            await sender.decided(run, severity)
            for _ in range(turns):
                await sender.turn(run)
    finally:
        await producer.stop()


async def load(settings: Settings, decisions_per_s: int, turns_per_s: int, runs: int, seconds: int) -> dict[str, float]:
    """Send decisions and turns at a steady rate; return how long it took: longer if the machine cannot keep it."""
    producer = AIOKafkaProducer(**connection_options(settings), linger_ms=5, max_batch_size=BATCH_BYTES)
    await producer.start()
    try:
        sender, began = _Sender(settings, producer), time.monotonic()
        decided = turned = 0
        while decided < decisions_per_s * seconds:
            passed = min(seconds, time.monotonic() - began)
            while turned < int(passed * turns_per_s):
                turned += 1
                await sender.turn(turned % runs)
            while decided < int(passed * decisions_per_s):
                decided += 1
                await sender.decided(decided * 7 % runs, _severity(decided))
            await asyncio.sleep(TICK_S)
        return {"seconds": time.monotonic() - began}
    finally:
        await producer.stop()


if __name__ == "__main__":
    done = uvloop.run(load(load_settings(), *map(int, sys.argv[1:])))
    sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
