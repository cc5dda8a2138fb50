"""What a worker writes onto the topics and what a publisher leaves there, as real records."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamproc.controls import ControlEvent, RunStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiokafka import ConsumerRecord

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
    """A decision that lets a run go on."""
    return halt_event(run_id, control_id or f"resume-{run_id}", type="run.resumed", severity="info", halt_reason=None)


def warning_event(run_id: str, control_id: str) -> ControlEvent:
    """A decision that only warns."""
    return halt_event(run_id, control_id, type="loop.warning", severity="warn", halt_reason=None)


class Worker:
    """Stands where the worker stands: writes real records onto the real topics."""

    def __init__(self, settings: Settings, producer: AIOKafkaProducer) -> None:
        self.settings = settings
        self._producer = producer

    async def control(self, event: ControlEvent) -> None:
        """Put a decision on the control topic."""
        await self.write("control", event.run_id, event.model_dump_json(exclude_none=True).encode())

    async def status(self, run_id: str, status: str, halt: ControlEvent | None = None) -> None:
        """Put a status on the runs topic."""
        value = RunStatus.model_validate({"run_id": run_id, "status": status, "halt": halt})
        await self.write("runs", run_id, value.model_dump_json().encode())

    async def write(self, topic: str, key: str, value: bytes | None) -> None:
        """Put a record on one of our topics."""
        await self._producer.send_and_wait(self.settings.topic(topic), value, key.encode())


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[Worker]:
    """A `Worker` for these settings."""
    producer = AIOKafkaProducer(**settings.kafka(), acks="all")
    await producer.start()
    try:
        yield Worker(settings, producer)
    finally:
        await producer.stop()


async def read_all(settings: Settings, topic: str = "turns") -> list[ConsumerRecord[bytes, bytes]]:
    """Every record that is on one of our topics now, partition by partition."""
    consumer = AIOKafkaConsumer(
        settings.topic(topic), **settings.kafka(), auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        found = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=1000)).values():
                    found += records
        return found
    finally:
        await consumer.stop()
