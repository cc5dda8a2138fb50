"""The one reader of topics, on a real broker: order, outages, recreated topics, deleted records, partitions, stalls."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import CommitFailedError, TopicAuthorizationFailedError

from deploy.local.kafka import Broker
from streamproc.errors import Unavailable
from streamproc.kafka import follow, topics
from streamproc.kafka.follow import END, Follower, Topic
from streamproc.kafka.group import GroupFollower
from streamproc.kafka.reading import committed_offsets
from streamproc.kafka.session import Outage
from streamproc.settings import Settings, load_settings
from tests.kafka.deleted_topics import delete_topics
from tests.waiting import until

log = logging.getLogger("tests.follow")
PARTITIONS = 2


@pytest.fixture
def settings(brokers: str, topic_prefix: str) -> Settings:
    return load_settings(brokers=brokers, topic_prefix=topic_prefix)


class Reading:
    """What a follower has passed on, in its order."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.events: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def handle(self, batches: dict[TopicPartition, list[Any]]) -> None:
        await self.open.wait()
        self.values += [record.value.decode() for records in batches.values() for record in records]

    def caught_up(self) -> None:
        self.events.append(f"caught up after {len(self.values)}")

    async def recreated(self) -> None:
        self.events.append("recreated")

    def has(self, *values: str) -> bool:
        return set(values) <= set(self.values)


@asynccontextmanager
async def following(follower: Follower) -> AsyncIterator[Follower]:
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.wait([task])


def follower_of(settings: Settings, reading: Reading, *followed: Topic, **options: Any) -> Follower:
    outage = Outage(log, "testing", "reads nothing", "reads again")
    return Follower(
        settings, followed, reading.handle, outage, on_caught_up=reading.caught_up, on_recreated=reading.recreated,
        **options,
    )  # fmt: skip


async def create(settings: Settings, *names: str, partitions: int = PARTITIONS) -> None:
    async with topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(settings.topic(name), partitions, 1) for name in names])

    for name in names:
        await until(partial(_has_partitions, settings, name, partitions))


async def publish(settings: Settings, name: str, *values: str, partition: int = 0) -> None:
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for value in values:
            await producer.send_and_wait(settings.topic(name), value.encode(), partition=partition)


async def test_stages_are_read_one_after_the_other_and_then_all_live(settings: Settings) -> None:
    await create(settings, "first", "second", "live", "empty")
    first, second = [f"a{n}" for n in range(50)], [f"b{n}" for n in range(50)]
    for partition in range(PARTITIONS):
        await publish(settings, "second", *second[partition::2], partition=partition)
        await publish(settings, "first", *first[partition::2], partition=partition)
    await publish(settings, "live", "old")
    reading = Reading()
    names = {name: settings.topic(name) for name in ("live", "second", "first", "empty")}
    follower = follower_of(
        settings, reading, Topic(names["live"], begin=END), Topic(names["second"], stage=1), Topic(names["first"]),
        Topic(names["empty"]),
    )  # fmt: skip
    assert follower.freshness is None
    async with following(follower):
        await until(lambda: follower.caught_up)
        assert sorted(reading.values[:50]) == sorted(first)
        assert sorted(reading.values[50:]) == sorted(second)
        assert (follower.progress, follower.trouble, follower.connected) == (1.0, None, True)
        assert follower.freshness is not None
        assert all(follower.positions[at] == end for at, end in follower.ends.items())
        await publish(settings, "live", "new")
        await publish(settings, "first", "a50")
        await until(lambda: reading.has("new", "a50"))
    assert "old" not in reading.values
    assert reading.events == ["caught up after 100"]


async def test_a_failing_handler_gets_the_same_records_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    await create(settings, "one", partitions=1)
    await publish(settings, "one", "a", "b")
    reading, failures = Reading(), [ZeroDivisionError("a bug"), OSError("no space")]

    async def handle(batches: dict[TopicPartition, list[Any]]) -> None:
        if failures:
            raise failures.pop()
        await reading.handle(batches)

    follower = Follower(settings, [Topic(settings.topic("one"))], handle, Outage(log, "testing", "lost", "back"))
    async with following(follower):
        await until(lambda: reading.has("a", "b"))
    assert reading.values == ["a", "b"]
    [unexpected] = [one for one in caplog.records if one.exc_info]
    assert unexpected.getMessage() == "unexpected error while testing; reconnecting"


@pytest.mark.long
async def test_it_goes_on_where_it_was_after_an_outage(
    own_broker: Broker, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = await asyncio.to_thread(own_broker.start)
    settings = load_settings(brokers=f"127.0.0.1:{state.port}", topic_prefix=topic_prefix)
    await create(settings, "one", "live")
    reading = Reading()
    follower = follower_of(
        settings, reading, Topic(settings.topic("live"), begin=END), Topic(settings.topic("one"), stage=1)
    )
    async with following(follower), asyncio.timeout(180):
        await until(lambda: follower.caught_up)
        await publish(settings, "one", "a")
        await publish(settings, "live", "b")
        await until(lambda: reading.has("a", "b"))

        own_broker.kill()
        await until(lambda: follower.trouble, 60)
        answered_s = follower.freshness
        assert not follower.connected
        await asyncio.to_thread(own_broker.start, state.port)
        await until(lambda: follower.connected, 60)
        assert follower.trouble is None
        assert answered_s is not None
        assert follower.freshness is not None
        assert follower.freshness > answered_s
        await publish(settings, "live", "c")
        await publish(settings, "one", "d", partition=1)
        await until(lambda: reading.has("c", "d"))

        # A broker that does not answer, although its connections are open: only the age says so, until requests expire.
        running = own_broker.running()
        os.kill(running.pid, signal.SIGSTOP)
        try:
            await until(lambda: time.monotonic() - (follower.freshness or 0.0) > 4.5)
            assert follower.trouble is None
        finally:
            os.kill(running.pid, signal.SIGCONT)
        await until(lambda: time.monotonic() - (follower.freshness or 0.0) < 1.0, 60)
    assert sorted(reading.values) == ["a", "b", "c", "d"]
    assert reading.events == ["caught up after 0"]
    ours = [one.getMessage() for one in caplog.records if one.name == log.name]
    assert [line.partition(";")[0] for line in ours] == ["reads nothing", "reads again"]


async def test_a_topic_that_was_made_again_is_read_from_its_beginning(settings: Settings) -> None:
    await create(settings, "one", "other")
    await publish(settings, "one", "a", "b", "c")
    await publish(settings, "other", "x")
    reading = Reading()
    followed = Topic(settings.topic("one")), Topic(settings.topic("other"), begin=END, stage=1)
    follower = follower_of(settings, reading, *followed)
    async with following(follower):
        await until(lambda: follower.caught_up)
        assert reading.values == ["a", "b", "c"]
        await delete_topics(settings, settings.topic("one"))
        await create(settings, "one")
        await publish(settings, "one", "d")
        await until(lambda: reading.has("d"), 60)
        await until(lambda: follower.caught_up)
        await publish(settings, "other", "y")
        await until(lambda: reading.has("y"))
    assert reading.values == ["a", "b", "c", "d", "y"]
    assert reading.events == ["caught up after 3", "recreated", "caught up after 4"]


async def _partitions(settings: Settings, name: str) -> int:
    async with topics.administering(settings) as admin:
        if settings.topic(name) not in await admin.list_topics():
            return 0
        [found] = await admin.describe_topics([settings.topic(name)])
        return len(found["partitions"])


async def _delete_before(settings: Settings, name: str, offset: int) -> None:
    async with topics.administering(settings) as admin:
        await admin.delete_records({TopicPartition(settings.topic(name), 0): RecordsToDelete(offset)})


async def test_deleted_records_are_passed_over_at_the_start_and_while_reading(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    await create(settings, "one", partitions=1)
    await publish(settings, "one", *map(str, range(10)))
    await _delete_before(settings, "one", 5)
    reading = Reading()
    at = TopicPartition(settings.topic("one"), 0)
    follower = follower_of(settings, reading, Topic(at.topic), positions={at: 2}, max_partition_fetch_bytes=1)
    async with following(follower):
        await until(lambda: follower.caught_up)
        assert reading.values == list(map(str, range(5, 10)))
        reading.open.clear()
        await publish(settings, "one", *map(str, range(10, 30)))
        await _delete_before(settings, "one", 25)
        reading.open.set()  # what it fetched before is handled; its next offset is out of range
        await until(lambda: reading.has(*map(str, range(25, 30))), 60)
        await until(lambda: follower.trouble is None)
    assert "OffsetOutOfRange" in caplog.text
    assert len(set(reading.values)) == len(reading.values) < 25
    assert reading.events == ["caught up after 5"]


async def test_new_partitions_are_read_from_their_beginning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.1)
    await create(settings, "one", partitions=1)
    await publish(settings, "one", "before")
    reading = Reading()
    follower = follower_of(settings, reading, Topic(settings.topic("one"), begin=END), ends_every_s=0.1)
    async with following(follower):
        await until(lambda: follower.caught_up)
        async with topics.administering(settings) as admin:
            await admin.create_partitions({settings.topic("one"): NewPartitions(2)})
        await until(lambda: _has_partitions(settings, "one", 2))
        await publish(settings, "one", "new", partition=1)
        await publish(settings, "one", "old", partition=0)
        await until(lambda: reading.has("new", "old"), 60)
    assert sorted(reading.values) == ["new", "old"]
    assert not [one for one in caplog.records if one.name == log.name]  # it is no trouble


async def _has_partitions(settings: Settings, name: str, count: int) -> bool:
    return await _partitions(settings, name) == count


async def test_an_optional_topic_is_read_once_it_exists(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.1)
    await create(settings, "one")
    reading = Reading()
    late = settings.topic("late")
    follower = follower_of(
        settings, reading, Topic(settings.topic("one")), Topic(late, begin=END, optional=True), ends_every_s=0.1
    )
    async with following(follower):
        await until(lambda: follower.caught_up)
        assert follower.missing == (late,)
        await create(settings, "late")
        await publish(settings, "late", "a")
        await until(lambda: reading.has("a"), 60)
        assert follower.missing == ()
    assert caplog.text.count(f"cannot be seen: {late}") == 1


async def test_a_consumer_that_has_stalled_is_replaced(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.2)
    await create(settings, "one")
    reading, consumers = Reading(), list[Any]()

    async def hang(consumer: AIOKafkaConsumer) -> None:
        """Make the first consumer believe that a fetch is under way, for ever."""
        if not consumers or consumer is consumers[0]:
            consumers[:] = [consumer]
            fetcher: Any = consumer._fetcher
            fetcher._in_flight.update(broker.nodeId for broker in consumer._client.cluster.brokers())

    follower = follower_of(
        settings, reading, Topic(settings.topic("one")), before_poll=hang, ends_every_s=0.2, poll_ms=20
    )
    async with following(follower):
        await until(lambda: follower.connected and consumers)
        await publish(settings, "one", "a")
        await until(lambda: reading.has("a"), 60)
    assert "reads nothing; reconnecting: reading has stalled at" in caplog.text
    assert reading.values == ["a"]


async def test_a_slow_handler_is_no_stall(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.05)
    await create(settings, "one", partitions=1)
    reading = Reading()
    follower = follower_of(
        settings, reading, Topic(settings.topic("one")), ends_every_s=0.05, max_poll_records=1, poll_ms=20
    )
    checks = 0
    ends = follow.Follower._note_answer

    def count(self: Follower) -> None:
        nonlocal checks
        checks += 1
        ends(self)

    monkeypatch.setattr(Follower, "_note_answer", count)
    async with following(follower):
        await until(lambda: follower.caught_up)
        reading.open.clear()
        await publish(settings, "one", "a", "b", "c")
        seen = checks
        await until(lambda: checks > seen + 10)
        assert follower.trouble is None
        reading.open.set()
        await until(lambda: reading.has("a", "b", "c"))
    assert reading.values == ["a", "b", "c"]


class Members:
    """Members of a group over two partitions with four records each, and what each has read. `unsettled` records stay
    open."""

    def __init__(self, settings: Settings, group: str) -> None:
        self.readings: dict[str, list[str]] = defaultdict(list)
        self.open: dict[str, list[Callable[[], None]]] = defaultdict(list)
        self._settings = settings
        self._group = group

    async def publish(self) -> None:
        await create(self._settings, "one")
        for partition in range(PARTITIONS):
            await publish(self._settings, "one", *(f"{partition}:{n}" for n in range(4)), partition=partition)

    def add(self, name: str, unsettled: Container[str] = ()) -> GroupFollower:
        async def handle(batches: dict[TopicPartition, list[Any]]) -> None:
            for at, records in batches.items():
                for record in records:
                    settled = follower.settling.begin(at, record.offset, 1)
                    self.readings[name].append(record.value.decode())
                    if record.value.decode() not in unsettled:
                        settled()
                    else:
                        self.open[record.value.decode()].append(settled)

        async def drain() -> None:
            self.readings[name].append("drained")

        follower = GroupFollower(
            self._settings, Topic(self._settings.topic("one")), handle,
            Outage(log, "testing", "reads nothing", "reads again"), group=self._group, reset="earliest", drain=drain,
        )  # fmt: skip
        return follower


async def test_a_group_reads_again_what_was_not_settled(settings: Settings, topic_prefix: str) -> None:
    members = Members(settings, topic_prefix)
    await members.publish()
    first = members.add("first", {"0:2"})
    task = asyncio.create_task(first.run())
    await until(lambda: len(members.readings["first"]) == 8 and first.connected, 60)
    first.stop()
    await asyncio.wait_for(task, 60)
    assert members.readings["first"][-1] == "drained"
    assert not first.connected

    async with following(members.add("second")):
        await until(lambda: len(members.readings["second"]) == 2, 60)
    assert members.readings["second"] == ["0:2", "0:3"]


async def test_what_settles_late_of_a_partition_that_moved_away_is_not_committed(
    settings: Settings, topic_prefix: str
) -> None:
    members = Members(settings, topic_prefix)
    await members.publish()
    first = members.add("first", [f"{partition}:{n}" for partition in range(PARTITIONS) for n in range(4)])
    group = settings.model_copy(update={"group": topic_prefix})

    async def committed() -> dict[int, int]:
        return await committed_offsets(group, settings.topic("one"), list(range(PARTITIONS)))

    async with following(first):
        await until(lambda: len(members.readings["first"]) == 8, 60)
        async with following(members.add("second")):
            await until(lambda: len(members.readings["second"]) == 4, 60)
            moved = int(members.readings["second"][0][0])
            kept = 1 - moved

            async def says(offsets: dict[int, int]) -> bool:
                return await committed() == offsets

            await until(partial(says, {moved: 4, kept: 0}), 60)
            members.open[f"{moved}:0"][0]()
            for number in range(4):
                for settle in members.open[f"{kept}:{number}"]:
                    settle()
            await until(partial(says, {moved: 4, kept: 4}), 60)


async def test_what_a_rebalance_keeps_from_being_committed_is_committed_after_it(
    settings: Settings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Members(settings, topic_prefix)
    await members.publish()
    commit = AIOKafkaConsumer.commit
    refused: list[dict[TopicPartition, int]] = []

    async def rebalancing(self: AIOKafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
        if max(offsets.values()) == 4 and len(refused) < 3:
            refused.append(offsets)
            raise CommitFailedError("the group rebalances")
        await commit(self, offsets)

    monkeypatch.setattr(AIOKafkaConsumer, "commit", rebalancing)
    group = settings.model_copy(update={"group": topic_prefix})

    async def committed() -> bool:
        return await committed_offsets(group, settings.topic("one"), [0, 1]) == {0: 4, 1: 4}

    async with following(members.add("first")):
        await until(committed, 60)
    assert len(refused) == 3


@pytest.mark.parametrize("arguments", [(), ({"quiet.one"},), ("quiet.other",), ("quiet.one",)])
def test_only_an_optional_topic_may_be_left_out(arguments: tuple[Any, ...]) -> None:
    settings = load_settings(topic_prefix="quiet")
    outage = Outage(log, "testing", "reads nothing", "reads again")
    follower = Follower(settings, [Topic("quiet.one"), Topic("quiet.two", optional=True)], Reading().handle, outage)
    error = TopicAuthorizationFailedError(*arguments)
    with pytest.raises(TopicAuthorizationFailedError):
        follower._hide(error)
    follower._hide(TopicAuthorizationFailedError("quiet.two"))
    assert follower._hidden == {"quiet.two"}


def test_a_connection_that_comes_and_goes_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(log, "testing", "reads nothing", "reads again")
    for _ in range(1_000):
        outage.lost(Unavailable("no broker answers"))
        outage.over()
    assert len(caplog.records) <= 20


def test_an_outage_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 1_000.0
    outage = Outage(log, "testing", "reads nothing", "reads again", clock=lambda: now_s)
    for _ in range(181):
        outage.lost(Unavailable("no broker answers"))
        now_s += 1
    outage.over()
    outage.over()
    assert [one.getMessage() for one in caplog.records] == [
        "reads nothing; reconnecting: no broker answers",
        "reads nothing (for 1 min); still reconnecting: no broker answers",
        "reads nothing (for 2 min); still reconnecting: no broker answers",
        "reads nothing (for 3 min); still reconnecting: no broker answers",
        "reads again",
    ]
