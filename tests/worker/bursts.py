"""What a poison burst is made of: many copies of a costly record, and a record that ends the process."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from streamproc.kafka.options import connection_options
from streamproc.settings import Settings

# The cases of `maximal` that cost the most to read and step; `python -m tests.worker.maximal` measures all.
COSTLIEST: Final = ("wire run.started bad node", "raw turn diff", "raw turn structured object")
EXIT_CODE: Final = 77
# A fault in native code, say: no exception, no clean-up.
DEADLY = f"""
import os
from tests.feeding import wrap_engines
def deadly(step, state, event, at_ms, position):
    if event.node == "deadly":
        os._exit({EXIT_CODE})
    return step(state, event, at_ms, position)
wrap_engines(deadly)
"""

BATCH_RECORDS: Final = 8
REQUESTS_MAX: Final = 20


def run_on(partition: int, partitions: int, stem: str = "run") -> str:
    """Return a run id whose records are in this partition."""
    places, number = list(range(partitions)), 0
    while DefaultPartitioner()(f"{stem}-{number}".encode(), places, places) != partition:
        number += 1
    return f"{stem}-{number}"


async def send_burst(settings: Settings, partition: int, key: bytes, value: bytes, count: int) -> None:
    """Send `count` (rounded up to whole batches) copies of a record to one partition of the turns topic, compressed."""
    async with AIOKafkaProducer(
        **connection_options(settings), compression_type="zstd", max_batch_size=16_000_000, max_request_size=16_000_000
    ) as producer:
        batch = producer.create_batch()
        for _ in range(BATCH_RECORDS):
            assert batch.append(key=key, value=value, timestamp=None) is not None
        batch.close()
        topic, left = settings.topic("turns"), -(-count // BATCH_RECORDS)
        while left > 0:  # compressed once, sent many times
            number = min(left, REQUESTS_MAX)
            sent = [await producer.send_batch(batch, topic, partition=partition) for _ in range(number)]
            await asyncio.gather(*sent)
            left -= number
