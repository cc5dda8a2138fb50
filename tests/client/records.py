"""Writes the records of a worker and reads those of a publisher, on real topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from streamproc.client import HaltListener
from streamproc.kafka.options import connection_options
from streamproc.model import wire
from streamproc.model.controls import ControlEvent, RunStatus
from streamproc.model.guard_report import is_guard_report
from streamproc.settings import Settings


def halt_event(run_id: str, control_id: str = "", **fields: object) -> ControlEvent:
    """A decision that halts a run."""
    return ControlEvent.model_validate(
        {
            "id": control_id or f"halt-{run_id}",
            "type": "loop.halted",
            "run_id": run_id,
            "code": "LOOP003",
            "severity": "halt",
            "message": "The same call three times.",
            "halt_reason": "oscillating",
        }
        | fields
    )


def resume_event(run_id: str, control_id: str = "") -> ControlEvent:
    """A decision that resumes a run."""
    return halt_event(run_id, control_id or f"resume-{run_id}", type="run.resumed", severity="info", halt_reason=None)


def warning_event(run_id: str, control_id: str) -> ControlEvent:
    """A decision that only warns."""
    return halt_event(run_id, control_id, type="loop.warning", severity="warn", halt_reason=None)


class Worker:
    """A stand-in for the worker that writes real records to the real topics."""

    def __init__(self, settings: Settings, producer: AIOKafkaProducer) -> None:
        self.settings = settings
        self._producer = producer

    async def control(self, event: ControlEvent) -> None:
        """Write a decision to the control topic."""
        await self.write("control", event.run_id, event.model_dump_json(exclude_none=True).encode())

    async def status(self, run_id: str, status: str, halt: ControlEvent | None = None) -> None:
        """Write a status to the runs topic."""
        value = RunStatus.model_validate({"run_id": run_id, "status": status, "halt": halt})
        await self.write("runs", run_id, value.model_dump_json().encode())

    async def write(self, topic: str, key: str, value: bytes | None) -> None:
        """Write a record to a topic of this deployment."""
        await self._producer.send_and_wait(self.settings.topic(topic), value, key.encode())


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[Worker]:
    """A `Worker` for these settings."""
    async with AIOKafkaProducer(**connection_options(settings), acks="all") as producer:
        yield Worker(settings, producer)


async def read_all(settings: Settings, topic: str = "turns") -> list[ConsumerRecord[bytes, bytes]]:
    """Return all records that are on a topic now, partition by partition."""
    async with AIOKafkaConsumer(
        settings.topic(topic), **connection_options(settings), auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        found = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=1000)).values():
                    found += records
        return found


async def turns_on(settings: Settings) -> list[wire.Event]:
    """Return all events that are on the turns topic now."""
    return [wire.decode(record.value or b"") for record in await read_all(settings)]


def distinct(events: list[wire.Event]) -> dict[str, list[int]]:
    """Return the sequence numbers of each run in log order, without duplicates of an event, and without what guards
    report."""
    seen: set[str] = set()
    numbers: dict[str, list[int]] = {}
    for event in events:
        if event.event_id not in seen and not is_guard_report(event):
            seen.add(event.event_id)
            numbers.setdefault(event.run_id, []).append(event.seq or 0)
    return numbers


async def work_forever(halts: HaltListener, run_id: str, started: asyncio.Event) -> None:
    """Work on a run until it is halted."""
    async with halts.guard(run_id):
        started.set()
        await asyncio.get_running_loop().create_future()


async def guarded(halts: HaltListener, run_id: str) -> asyncio.Task[None]:
    """Return a task that works on a run under its guard and has started."""
    started = asyncio.Event()
    task = asyncio.create_task(work_forever(halts, run_id, started))
    await started.wait()
    return task
