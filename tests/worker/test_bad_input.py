"""Unusable records on a real Kafka: each affects only itself or its run, and is reported with its reason."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from streamproc.kafka import topics as kafka_topics
from streamproc.model import wire
from streamproc.settings import Settings
from tests.waiting import until
from tests.worker.running import (
    Topics,
    event_record,
    expected_ids,
    gather_controls,
    looping_run,
    said,
    turn,
)

LARGE = 10_000_000


class Bad(NamedTuple):
    """A record that is refused, the field that is named, and a part of the reason."""

    key: bytes | None
    value: bytes | None
    field: str
    reason: str


BAD = {
    "unparsable bytes": Bad(b"r", b"\xff\xfe not JSON", "event", ""),
    "half a line": Bad(b"r", b'{"run_id": "r", "no', "event", ""), "no value": Bad(b"r", None, "event", "no value"),
    "an empty value": Bad(b"r", b"", "event", ""), "a list": Bad(b"r", b"[1, 2]", "event", ""),
    "nested without end": Bad(b"r", b"[" * 100_000, "event", ""),
    "no run_id": Bad(b"r", b'{"node": "coder"}', "run_id", ""), "no node": Bad(b"r", b'{"run_id": "r"}', "node", ""),
    "wrong types": Bad(b"r", b'{"run_id": "r", "node": "coder", "tests": 7}', "tests", ""),
    "an unknown type": Bad(b"r", b'{"run_id": "r", "node": "coder", "type": "surprise"}', "type", ""),
    "a cost that is no number": Bad(b"r", b'{"run_id":"r","node":"n","usage":{"cost_usd":NaN}}', "", ""),
    "a negative cost": Bad(b"r", turn("r", usage={"cost_usd": -1})[1], "usage.cost_usd", ""),
    "another run's key": Bad(b"s", turn("r")[1], "key", "run_id is 'r'"),
    "no key": Bad(None, turn("r")[1], "key", "no key"),
    "the year 9999": Bad(b"r", turn("r", at="9999-12-31T23:59:59Z")[1], "at", "outside the years"),
    "ten megabytes": Bad(b"r", turn("r", output="x" * LARGE)[1], "event", "bytes, more than"),
}  # fmt: skip


@pytest.fixture(scope="module")
def large_records(brokers: str, shared_settings: Settings) -> None:
    """The turns topic accepts records that are larger than any event may be."""
    asyncio.run(_allow_large(brokers, shared_settings.topic("turns")))


async def _allow_large(brokers: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "12000000"})])
    finally:
        await admin.close()


async def dead_letters_of(topics: Topics, count: int) -> list[Any]:
    """The dead letters, once there are that many."""
    found: list[Any] = []

    async def enough() -> bool:
        found[:] = await topics.read("dead-letter")
        return len(found) >= count

    await until(enough, 60, f"{count} dead letters", every_s=0.2)
    return found


async def accepted(topics: Topics, bad: Bad) -> bool:
    """Send a record; return whether the topic's limit allowed it."""
    try:
        await topics.send([(bad.key, bad.value)])
    except MessageSizeTooLargeError:
        return False
    return True


async def test_an_unusable_record_is_refused_with_reason_field_remedy_and_origin(shared, large_records) -> None:
    topics, _worker = shared
    after = looping_run("after-the-bad-ones")
    large = BAD["ten megabytes"]
    # The broker applies a topic's new limit a moment after it has confirmed it; until then it stores nothing.
    await until(lambda: accepted(topics, large), 30, "the broker to accept large records", every_s=0.2)
    await topics.send([(bad.key, bad.value) for bad in BAD.values() if bad is not large] + after)
    await gather_controls(topics, expected_ids(after))

    outgoing = await dead_letters_of(topics, len(BAD))
    places = {(record.partition, record.offset): record for record in await topics.read("turns")}

    for name, bad in BAD.items():
        mine = [outgoing_record for outgoing_record in outgoing if came_from(outgoing_record, places, bad)]
        assert len(mine) == 1, name
        headers = {key: value.decode() for key, value in mine[0].headers}
        assert bad.field in headers["field"].split(";")[0], name
        assert bad.reason in headers["reason"], name
        assert headers["remedy"], name
        assert headers["source.topic"] == topics.settings.topic("turns")
        assert headers["detector.version"]
        if "truncated.from_bytes" in headers:
            assert int(headers["truncated.from_bytes"]) == len(bad.value or b"")
            assert (bad.value or b"").startswith(mine[0].value)
            assert len(mine[0].value) > topics.settings.event_bytes_max / 2
        else:
            assert mine[0].value == (bad.value or b"")
            assert mine[0].key == bad.key
    assert len(outgoing) == len(BAD)


def came_from(outgoing_record: Any, places: dict[tuple[int, int], Any], bad: Bad) -> bool:
    headers = dict(outgoing_record.headers)
    source = places[int(headers["source.partition"]), int(headers["source.offset"])]
    assert int(headers["source.timestamp"]) == source.timestamp
    return (source.key, source.value) == (bad.key, bad.value)


async def test_a_refused_record_fits_into_the_dead_letter_topic(shared) -> None:
    settings = shared[0].settings
    by_name = {spec.name: spec.config for spec in kafka_topics.specs(settings)}
    turns, dead = by_name[settings.topic("turns")], by_name[settings.topic("dead-letter")]
    assert int(dead["max.message.bytes"]) > int(turns["max.message.bytes"]) > settings.event_bytes_max


async def test_an_engine_failure_on_one_event_stops_neither_that_run_nor_other_runs(shared) -> None:
    topics, worker = shared
    cursed, other = looping_run("cursed-run"), looping_run("its-neighbour")
    bad = event_record(wire.Turn(w=1, run_id="cursed-run", node="cursed", event_id="bad", output=said("new")))
    await topics.send([*cursed[:2], bad, *cursed[2:], *other])

    # As if the bad event had never been: its news would have broken the loop.
    controls = await gather_controls(topics, expected_ids(cursed) | expected_ids(other))

    await topics.done()
    [outgoing_record] = [one for one in await topics.read("dead-letter") if one.key == b"cursed-run"]
    headers = dict(outgoing_record.headers)
    assert outgoing_record.value == bad[1]
    assert headers["field"] == b"engine"
    assert b"a bug in a detector" in headers["reason"]
    mine = [control["id"] for control in controls if control["run_id"] == "cursed-run"]
    assert set(mine) == expected_ids(cursed)
    assert "the engine failed on" in worker.text


async def test_duplicates_late_events_and_large_runs_stay_bounded(shared) -> None:
    topics, worker = shared
    twice = [looping_run("twice")[0]] * 5
    finished = [*looping_run("finished", 1), event_record(wire.RunFinished(w=1, run_id="finished", event_id="end"))]
    late = looping_run("finished")[1:]
    crowd = [
        event_record(
            wire.Turn(w=1, run_id="crowd", node=f"node-{number}", event_id=f"c{number}", output=said(f"{number}"))
        )
        for number in range(10_000)
    ]
    far_off = [
        event_record(wire.Turn(w=1, run_id="year-9999", node="coder", event_id=f"y{number}", at=at, output=said("x")))
        for number, at in enumerate((253_402_300_799_999, -1, 2**62))
    ]
    after = looping_run("after-the-crowd")
    records = [*twice, *finished, *late, *crowd, *far_off, *after]
    await topics.send(records)

    controls = await gather_controls(topics, expected_ids(after))
    await topics.done()

    mine = {"twice", "finished", "crowd", "year-9999"}
    assert {control["id"] for control in controls if control["run_id"] in mine} == expected_ids(
        [record for record in records if record[0].decode() in mine]
    )
    assert worker.running


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_of_kafka_is_read(shared, codec) -> None:
    topics, _worker = shared
    records = looping_run(f"compressed-with-{codec}")
    await topics.send(records, compression_type=codec)

    await gather_controls(topics, expected_ids(records))
