"""A worker that restarts has its runs again, whatever the changelog looks like by then."""

from __future__ import annotations

import signal

import pytest
from aiokafka import AIOKafkaProducer

from streamproc.kafka.topics import changelog_topic
from streamproc.model import wire
from streamproc.replay.published import statuses
from streamproc.worker.codec import encode_run, halt_of, state_bytes
from tests.states import HEAD, of_another_layout, of_version_2
from tests.worker.running import (
    event_record,
    expected_ids,
    gather_controls,
    honest_run,
    log_of_loops,
    looping_run,
    said,
)
from tests.worker.test_rebalance import ready_lines


async def end_with_nothing(settings) -> None:
    """Let the last offset of each changelog partition hold no record, as compaction may leave it."""
    # The end of a transaction takes an offset, and is no record.
    sending = AIOKafkaProducer(bootstrap_servers=settings.brokers, transactional_id=settings.topic_prefix)
    async with sending as producer, producer.transaction():
        for partition in range(settings.partitions):
            await producer.send(changelog_topic(settings), None, key=b"nobody", partition=partition)


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


async def stored(settings, topics):
    """Return the latest record of every stored run, by its key."""
    return {record.key: record for record in await topics.read_topic(changelog_topic(settings)) if record.value}


async def store_again(settings, topics, changed) -> None:
    """Write every stored run again, as another version would have."""
    latest = await stored(settings, topics)
    assert latest
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for record in latest.values():
            value = changed(record.value)
            await producer.send_and_wait(changelog_topic(settings), value, key=record.key, partition=record.partition)


@pytest.mark.long
async def test_a_worker_stops_at_states_of_another_version_and_no_halt_is_lifted(
    settings, topics, start_worker
) -> None:
    """As after an upgrade that was taken back. A run that begins again would be halted no more."""
    first = start_worker(settings)
    await topics.send(looping_run("stuck") + honest_run("working"))
    await topics.done()
    first.end(signal.SIGTERM)
    [halt] = [control["id"] for control in await topics.controls() if control["severity"] == "halt"]
    await store_again(settings, topics, of_another_layout)

    second = start_worker(settings)
    await topics.send(honest_run("stuck", 2))
    assert second.end_code() == 2
    assert "another version of streamproc wrote the states of" in second.text
    assert "Start the version that wrote them, or a later one" in second.text
    assert (await statuses(settings))["stuck"].status == "halted"

    await store_again(settings, topics, of_another_layout)
    third = start_worker(settings)
    await topics.send(looping_run("other"))
    await topics.done()
    assert (await statuses(settings))["stuck"].status == "halted"
    assert [control["id"] for control in await topics.controls() if control["run_id"] == "stuck"].count(halt) == 1
    third.end(signal.SIGTERM)


def spending_run(run_id: str, turns: range) -> list[tuple[bytes, bytes]]:
    """A run with a budget of 2 USD, of which each turn costs half a dollar and says something new."""
    begun = wire.RunStarted(w=1, run_id=run_id, event_id="begun", budgets={"maxCostUsd": 2_000_000})
    half = wire.Usage(cost_usd_micro=500_000)
    steps = [
        wire.Turn(w=1, run_id=run_id, node="coder", event_id=f"{run_id}/{at}", usage=half, output=said(f"Step {at}."))
        for at in turns
    ]
    return [event_record(event) for event in (steps if turns.start else [begun, *steps])]


def as_version_2(raw: bytes) -> bytes:
    return encode_run(of_version_2(state_bytes(raw)), halt_of(raw))


async def test_states_of_the_version_before_are_read_once_and_nothing_of_them_is_lost(
    settings, topics, start_worker
) -> None:
    """No halt is lifted, no spend forgotten, and nothing published twice under two ids."""
    first = start_worker(settings)
    await topics.send(looping_run("stuck") + spending_run("spender", range(3)) + honest_run("working"))
    await topics.done()
    first.end(signal.SIGTERM)
    before = {control["id"] for control in await topics.controls()}
    await store_again(settings, topics, as_version_2)

    second = start_worker(settings)
    await second.ready()
    await topics.send(looping_run("stuck") + honest_run("stuck", 2) + spending_run("spender", range(3, 5)))
    await topics.done()
    second.end(signal.SIGTERM)

    assert (await statuses(settings))["stuck"].status == "halted"
    controls = await topics.controls()
    assert len({control["id"] for control in controls}) == len(controls)
    new = [(control["run_id"], control["severity"]) for control in controls if control["id"] not in before]
    assert ("spender", "halt") in new
    assert {run_id for run_id, _ in new} == {"spender"}
    versions = {record.key: state_bytes(record.value)[0] for record in (await stored(settings, topics)).values()}
    assert versions == {b"stuck": HEAD[0], b"spender": HEAD[0], b"working": 2}
