"""The private parts of aiokafka that `kafka/vendor.py` uses, a test for each: a release that changes one fails here.

The first tests say what a part is called and takes; the others say, on a real broker, that it does what is needed.
`test_taking`, `test_reading_first`, `test_fetch_response` and `test_uvloop_resets` test the larger mechanisms.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState, TopicPartitionState
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.memory_records import MemoryRecords

from streamproc.kafka import topics, vendor
from streamproc.kafka.options import connection_options
from streamproc.settings import Settings, load_settings
from tests.waiting import until

PLACE = TopicPartition("turns", 0)
CALLS = {  # what is called or replaced: its arguments
    AIOKafkaConnection.send: "self, request, expect_response",
    AIOKafkaConnection._send_sasl_token: "self, payload, expect_response",
    AIOKafkaAdminClient._send_request: "self, request, node_id",
    AIOKafkaAdminClient._send_to_controller: "self, request",
    GroupCoordinator.fetch_committed_offsets: "self, partitions",
    Fetcher._proc_fetch_request: "self, assignment, node_id, request",
    Fetcher._create_fetch_waiter: "self",
    Fetcher._notify: "self, future",
    FetchResult.check_assignment: "self, tp",
    FetchResult._update_position: "self",
    SubscriptionState.fetch_context: "self",
    SubscriptionState.wait_for_assignment: "self",
    Assignment.state_value: "self, tp",
}


def made(kind: type[Any]) -> Any:
    """An object of aiokafka that is not connected."""
    subscriptions = SubscriptionState()
    client: Any = SimpleNamespace(_metadata_max_age_ms=1_000, _loop=asyncio.get_running_loop())
    memory = MemoryRecords(b"")
    makers: dict[type[Any], Callable[[], Any]] = {
        AIOKafkaConsumer: lambda: AIOKafkaConsumer(group_id="g"),
        AIOKafkaProducer: AIOKafkaProducer,
        AIOKafkaAdminClient: AIOKafkaAdminClient,
        Fetcher: lambda: Fetcher(client, subscriptions),
        FetchResult: lambda: FetchResult(PLACE, assignment=None, partition_records=None, backoff=0),
        PartitionRecords: lambda: PartitionRecords(PLACE, memory, [], 0, None, None, True, 0),
        TopicPartitionState: lambda: TopicPartitionState(None),  # type: ignore[arg-type]
    }
    return makers[kind]()


@pytest.mark.parametrize(("call", "arguments"), CALLS.items(), ids=lambda one: getattr(one, "__qualname__", ""))
def test_a_call_takes(call: Callable[..., Any], arguments: str) -> None:
    assert ", ".join(inspect.signature(call).parameters) == arguments


@pytest.mark.parametrize(("kind", "name"), [
    (AIOKafkaConsumer, "_client"), (AIOKafkaConsumer, "_closed"), (AIOKafkaConsumer, "_coordinator"),
    (AIOKafkaConsumer, "_fetcher"), (AIOKafkaConsumer, "_fetch_max_wait_ms"), (AIOKafkaConsumer, "_subscription"),
    (AIOKafkaProducer, "client"), (AIOKafkaProducer, "_closed"), (AIOKafkaProducer, "_sender"),
    (AIOKafkaAdminClient, "_client"),
    (Fetcher, "_closed"), (Fetcher, "_fetch_task"), (Fetcher, "_fetch_waiters"), (Fetcher, "_records"),
    (Fetcher, "_subscriptions"), (Fetcher, "_wait_consume_future"),
    (FetchResult, "_partition_records"), (FetchResult, "_topic_partition"),
    (PartitionRecords, "_check_crcs"), (PartitionRecords, "_isolation_level"), (PartitionRecords, "_records"),
    (PartitionRecords, "next_fetch_offset"), (TopicPartitionState, "_position"),
])  # fmt: skip
async def test_there_is(kind: type[Any], name: str) -> None:
    one = made(kind)
    assert hasattr(one, name)
    if isinstance(one, Fetcher):
        await one.close()


@pytest.fixture
def settings(brokers: str, topic_prefix: str) -> Settings:
    return load_settings(brokers=brokers, topic_prefix=topic_prefix)


@asynccontextmanager
async def reading(settings: Settings, *values: bytes) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer in a group, which has got its partition, with these records in it."""
    topic = settings.topic("turns")
    async with topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
    async with AIOKafkaConsumer(
        topic, **connection_options(settings), group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        await until(lambda: TopicPartition(topic, 0) in consumer.assignment())
        yield consumer


async def test_a_member_of_a_group_is_known(settings: Settings) -> None:
    async with reading(settings, b"1") as consumer:
        await until(lambda: vendor.is_member(consumer))
        assert vendor.has_joined(consumer)
        vendor.raise_coordination_error(consumer)  # there is none
    assert not vendor.has_joined(AIOKafkaConsumer(group_id="g"))
    assert not vendor.has_joined(None)


async def test_an_error_that_ends_the_coordination_is_raised(settings: Settings) -> None:
    async with reading(settings, b"1") as consumer:
        task = consumer._coordinator._coordination_task  # type: ignore[union-attr]
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended.set_exception(ValueError("a bug"))
        consumer._coordinator._coordination_task = ended  # type: ignore[union-attr, assignment]
        with pytest.raises(KafkaError, match="coordinates no more"):
            vendor.raise_coordination_error(consumer)
        consumer._coordinator._coordination_task = task  # type: ignore[union-attr]


async def test_offsets_are_committed_with_metadata(settings: Settings) -> None:
    place = TopicPartition(settings.topic("turns"), 0)
    async with reading(settings, b"1") as consumer:
        assert await vendor.committed_metadata(consumer, place) == (None, "")
        await consumer.commit({place: (1, "a mark")})
        assert await vendor.committed_metadata(consumer, place) == (1, "a mark")


async def test_records_are_taken_and_the_next_offset_is_behind_them(settings: Settings) -> None:
    place = TopicPartition(settings.topic("turns"), 0)
    async with reading(settings, b"1", b"2") as consumer:
        vendor.decode_fetches(consumer)
        vendor.wait_for_fetches(consumer, 10)
        await until(lambda: place in vendor.untaken(consumer))
        assert vendor.next_offset(consumer, place) == 0
        found = await vendor.take_records(consumer, {place}, 10)
        assert [bytes(record.value) for record in found[place]] == [b"1", b"2"]
        assert vendor.next_offset(consumer, place) == await consumer.position(place) == 2
        assert await vendor.take_records(consumer, {place}, 0) == {}
        assert vendor.next_offset(consumer, TopicPartition("other", 0)) is None
    with pytest.raises(ConsumerStoppedError):
        await vendor.take_records(consumer, {place}, 0)
    assert vendor.next_offset(AIOKafkaConsumer(), place) is None


async def test_a_client_that_fetches_no_more_is_an_error(settings: Settings) -> None:
    async with reading(settings, b"1") as consumer:
        task, consumer._fetcher._fetch_task = consumer._fetcher._fetch_task, asyncio.get_running_loop().create_future()  # type: ignore[union-attr]
        consumer._fetcher._fetch_task.set_exception(ValueError("a bug"))  # type: ignore[union-attr]
        with pytest.raises(KafkaError, match="fetches no more"):
            await vendor.take_records(consumer, set(), 0)
        consumer._fetcher._fetch_task = task  # type: ignore[union-attr]


async def test_an_admin_client_sends_any_request(settings: Settings) -> None:
    async with topics.administering(settings) as admin:
        for controller in (False, True):
            assert (await vendor.ask(admin, MetadataRequest([]), controller=controller)).brokers
        assert vendor.network_client(admin).cluster.brokers()


@pytest.mark.long
async def test_a_producer_ends_with_what_it_has_not_sent(settings: Settings) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=settings.brokers, request_timeout_ms=1_000)
    await producer.start()
    assert vendor.network_client(producer) is producer.client
    sender = vendor.end_at_once(producer)
    assert sender is not None
    await asyncio.wait([sender])
    with pytest.raises(KafkaError):
        await producer.send(settings.topic("turns"), b"1")
    await producer.client.close()
