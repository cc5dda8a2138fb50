"""The home of a run: as the clients of Kafka choose it, and what is concluded from records elsewhere."""

from __future__ import annotations

import asyncio
import random
import uuid

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from confluent_kafka import Producer
from hypothesis import given, strategies as st

from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.partitioning import EVERYWHERE, HASHES, Home, _murmur2, find_strays
from streamproc.kafka.reading import open_topic
from streamproc.settings import load_settings

KEYS = [str(uuid.UUID(int=random.Random(number).getrandbits(128))).encode() for number in range(300)]

# From the tests of Kafka's own Java client (`UtilsTest.testMurmur2`, Apache License 2.0).
OF_JAVA = {
    b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}  # fmt: skip


@pytest.mark.parametrize("key", OF_JAVA)
def test_murmur2_is_that_of_kafkas_java_client(key: bytes) -> None:
    assert _murmur2()(key) == OF_JAVA[key] % 2**32


@given(st.binary(max_size=300))
def test_murmur2_is_that_of_aiokafka_also_where_it_is_compiled(key: bytes) -> None:
    assert _murmur2()(key) == aiokafka_murmur2(key)


def test_fnv1a_is_the_published_one_with_its_sign_dropped_as_sarama_does() -> None:
    """0xbf9cf968 is the published FNV-1a of this text, a negative number of 32 bits."""
    assert Home("fnv1a", 7).of(b"foobar") == (2**32 - 0xBF9CF968) % 7
    assert Home("fnv1a", 5).of(b"") == (2**32 - 0x811C9DC5) % 5


@pytest.mark.parametrize(
    ("partitioner", "ours"),
    [("consistent_random", "crc32"), ("consistent", "crc32"), ("murmur2_random", "murmur2"), ("murmur2", "murmur2")],
)
async def test_librdkafka_puts_a_run_where_the_rule_says(
    brokers: str, topic_prefix: str, partitioner: str, ours: str
) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=7)
    await kafka_topics.apply(settings)
    producer = Producer({"bootstrap.servers": settings.brokers, "partitioner": partitioner})
    for key in KEYS:
        producer.produce(settings.topic("runs"), b"{}", key=key)
    await asyncio.to_thread(producer.flush, 30)

    found: dict[bytes | None, int] = {}
    async with open_topic(settings, "runs") as reader:
        async for batch in reader.batches():
            found |= {record.key: record.partition for record in batch}
    assert found == {key: Home(ours, 7).of(key) for key in KEYS}


@pytest.mark.parametrize("partitioner", HASHES)
def test_every_key_has_one_home(partitioner: str) -> None:
    for count in (1, 2, 3, 4, 7, 12, 64):
        home = Home(partitioner, count)
        homes = {key: [number for number in range(count) if home.holds(key, number)] for key in KEYS}
        assert homes == {key: [home.of(key)] for key in KEYS}
        assert len({home.of(key) for key in KEYS}) == min(count, len({home.of(key) for key in KEYS})) > count * 0.6


def test_without_a_rule_or_a_count_every_partition_is_a_home() -> None:
    assert EVERYWHERE.holds(b"r", 17)
    assert Home("any", 4).holds(b"r", 3)
    assert Home("any", 4).of(b"r") == Home("murmur2", 4).of(b"r")


def strays_of(partitioner: str, count: int = 4, of: int = 4, also: str = "") -> str:
    """What is said of records that were published by one partitioner (and every second one by another)."""
    homes = [Home(partitioner, of), Home(also or partitioner, of)]
    records = [(key, homes[number % 2].of(key)) for number, key in enumerate(KEYS)]
    home = Home("murmur2", count)
    found = find_strays(home, records)
    return found.cause(home) if found.strays else ""


def test_the_cause_of_strays_is_named_with_the_setting() -> None:
    assert strays_of("murmur2") == ""
    assert "set STREAMPROC_PARTITIONER=crc32 everywhere" in strays_of("crc32")
    assert "set STREAMPROC_PARTITIONER=fnv1a everywhere" in strays_of("fnv1a")
    assert "some publishers choose partitions by crc32, others by murmur2" in strays_of("crc32", also="murmur2")
    assert "STREAMPROC_EARLIER_PARTITIONS=4" in strays_of("murmur2", count=6)
    assert "no partitioner that this version knows" in strays_of("crc32", also="fnv1a")
    assert load_settings(partitioner="crc32").partitioner == "crc32"
