"""A worker that restarts has its runs again, whatever the changelog looks like by then."""

from __future__ import annotations

import signal

from aiokafka import AIOKafkaProducer

from streamproc.kafka.topics import changelog_topic
from tests.worker.running import expected_ids, gather_controls, log_of_loops
from tests.worker.test_rebalance import ready_lines


async def end_with_nothing(settings) -> None:
    """Let the last offset of each changelog partition hold no record, as compaction may leave it."""
    # The end of a transaction takes an offset, and is no record.
    producer = AIOKafkaProducer(bootstrap_servers=settings.brokers, transactional_id=settings.topic_prefix)
    await producer.start()
    try:
        async with producer.transaction():
            for partition in range(settings.partitions):
                await producer.send(changelog_topic(settings), None, key=b"nobody", partition=partition)
    finally:
        await producer.stop()


async def test_the_last_offset_of_a_changelog_need_not_hold_a_record(settings, topics, start_worker) -> None:
    records = log_of_loops(20)
    half = len(records) // 2
    first = start_worker(settings)
    await topics.send(records[:half])
    await topics.done()
    first.end(signal.SIGTERM)
    await end_with_nothing(settings)

    second = start_worker(settings)
    await second.ready()
    assert ready_lines(second.text) == [({0, 1, 2, 3}, 20)]
    await topics.send(records[half:])

    await gather_controls(topics, expected_ids(records))
    await topics.done()
    assert {control["id"] for control in await topics.controls()} == expected_ids(records)
