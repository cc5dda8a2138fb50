"""A worker that restarts has its runs again, whatever the changelog looks like by then."""

from __future__ import annotations

import signal

from aiokafka import AIOKafkaProducer

from streamproc.core.run_state import HEAD
from streamproc.kafka.topics import changelog_topic
from streamproc.replay.published import statuses
from tests.worker.running import expected_ids, gather_controls, honest_run, log_of_loops, looping_run
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


async def change_layout(settings, topics, before: bytes, after: bytes) -> None:
    """Write every stored state again as a version with another layout would have."""
    latest = {record.key: record for record in await topics.read_topic(changelog_topic(settings)) if record.value}
    assert latest
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for record in latest.values():
            assert record.value.count(before) == 1
            value = record.value.replace(before, after)
            await producer.send_and_wait(changelog_topic(settings), value, key=record.key, partition=record.partition)


async def test_a_worker_stops_at_states_of_another_version_and_no_halt_is_lifted(
    settings, topics, start_worker
) -> None:
    """As after an upgrade that was taken back. A run that begins again would be halted no more."""
    first = start_worker(settings)
    await topics.send(looping_run("stuck") + honest_run("working"))
    await topics.done()
    first.end(signal.SIGTERM)
    [halt] = [control["id"] for control in await topics.controls() if control["severity"] == "halt"]
    other = HEAD[:-1] + bytes([HEAD[-1] ^ 0xFF])
    await change_layout(settings, topics, HEAD, other)

    second = start_worker(settings)
    await topics.send(honest_run("stuck", 2))
    assert second.end_code() == 2
    assert "another version of streamproc wrote the states of" in second.text
    assert "Start the version that wrote them, or a later one" in second.text
    assert (await statuses(settings))["stuck"].status == "halted"

    await change_layout(settings, topics, other, HEAD)
    third = start_worker(settings)
    await topics.send(looping_run("other"))
    await topics.done()
    assert (await statuses(settings))["stuck"].status == "halted"
    assert [control["id"] for control in await topics.controls() if control["run_id"] == "stuck"].count(halt) == 1
    third.end(signal.SIGTERM)
