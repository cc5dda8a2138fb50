"""Runs outside of their home, from before records there were refused: found, lifted and removed by an operator."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streamproc.client import HaltListener
from streamproc.fleet.commands import Command, issue
from streamproc.fleet.standing_halts import StandingHalt, halt_to_lift, halts_outside_home
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import home_of
from streamproc.settings import Settings, load_settings
from tests.fleet.signing import OPERATOR, WORKER
from tests.waiting import until
from tests.worker.running import Topics, WorkerProcess

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]
RUN = b"r1"
TURN = b'{"w":1,"type":"turn","run_id":"r1","node":"a","output":[7,7,0,40]}'
KEYS = {"control_key": WORKER.line(), "command_key": OPERATOR.line()}


async def publish(settings: Settings, partition: int, *values: bytes) -> None:
    async with AIOKafkaProducer(**connection_options(settings)) as producer:
        for value in values:
            await producer.send_and_wait(settings.topic("turns"), value, key=RUN, partition=partition)


@pytest.mark.long
async def test_a_halt_from_before_the_rule_stays_in_force_until_an_operator_lifts_and_removes_it(
    brokers: str, topic_prefix: str, tmp_path: Path
) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=2, session_timeout_s=6, **KEYS)
    before = settings.model_copy(update={"partitioner": "any"})
    home = home_of(settings, 2).of(RUN)
    other = 1 - home
    topics = Topics(settings)
    await kafka_topics.apply(settings)
    worker = WorkerProcess(before, tmp_path / "before.log")
    worker.start()
    try:
        await worker.ready()
        await publish(before, other, *[TURN] * 4)
        await topics.done()
        worker.end(signal.SIGTERM)

        worker = WorkerProcess(settings, tmp_path / "after.log")
        worker.start()
        await worker.ready()
        [standing] = await halts_outside_home(settings)
        assert standing == StandingHalt("r1", other, standing.halt)

        def resume(halt: str = "") -> Command:
            return Command(verb="resume", scope="run:r1", by="ada", why="from before", partition=other, halt=halt)

        async with HaltListener(settings=settings) as halts:
            assert halts.halted("r1")
            await publish(settings, home, *[TURN] * 4)  # it goes on where it lives, and is halted there, too
            await until(lambda: len(halts._halts.of("r1")) == 2, 60, "the halt at home")
            assert await halt_to_lift(settings, "r1") == halts.halted("r1").id
            await publish(settings, other, TURN)  # nothing reaches the old one but a resume

            await issue(settings, resume())
            await until(lambda: len(halts._halts.of("r1")) == 1, 60, "the old halt to be lifted")
            assert halts.halted("r1").trigger.partition == home
        await topics.done()

        assert await halts_outside_home(settings) == []
        statuses = [(one.partition, one.value) for one in await topics.read("runs") if one.key == RUN]
        assert [value for partition, value in statuses if partition == other][-1] is None
        assert [value for partition, value in statuses if partition == home][-1] is not None
        dead = [one for one in await topics.read("dead-letter") if one.key == RUN]
        assert [dict(one.headers)["source.partition"] for one in dead] == [b"%d" % other]
        assert await last_state(settings, other) is None

        await issue(settings, resume(standing.halt))
        await topics.done()
        resumed = [one for one in await topics.read("control") if b"run.resumed" in (one.value or b"")]
        assert len(resumed) == 1
        assert msgspec.json.decode(resumed[0].value)["trigger"]["partition"] == other
    finally:
        worker.end(signal.SIGKILL)


async def last_state(settings: Settings, partition: int) -> bytes | None:
    """The last state of the run in the changelog of a partition; None for a tombstone."""
    place, last = TopicPartition(kafka_topics.changelog_topic(settings), partition), b""
    async with AIOKafkaConsumer(**connection_options(settings), auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        await consumer.seek_to_beginning(place)
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(place, timeout_ms=200)).values():
                last = next((one.value for one in reversed(records) if one.key == RUN), last)
    return last
