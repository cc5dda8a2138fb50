"""The middle of the bare round trip: a separate process that forwards each message from one topic to another."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

import uvloop
from aiokafka import AIOKafkaProducer

from benchmarks.kafka_log import consumer
from streamproc.kafka.options import connection_options
from streamproc.settings import load_settings


async def relay(source: str, target: str) -> None:
    """Forward messages until cancelled."""
    settings = load_settings()
    producer = AIOKafkaProducer(**connection_options(settings), enable_idempotence=True)
    await producer.start()
    try:
        async with consumer(settings, source) as reader:
            async for record in reader:
                await producer.send(target, record.value, record.key, partition=record.partition)
    finally:
        await producer.stop()


async def main() -> None:
    """``python -m benchmarks.relay SOURCE TARGET``."""
    task = asyncio.ensure_future(relay(*sys.argv[1:]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    uvloop.run(main())
