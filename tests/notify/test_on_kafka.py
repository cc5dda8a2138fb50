"""From a turn to a person: publisher, real Kafka, worker, control topic, `streamproc notify`, web server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka import Broker, free_port
from streamproc.client import TurnPublisher
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.reading import committed_offsets
from streamproc.model.controls import ControlEvent
from streamproc.settings import Settings, load_settings
from tests.notify.controls import control
from tests.notify.receiver import Receiver
from tests.programs import clean_environment
from tests.waiting import until

Start = Callable[..., "Process"]


class Process:
    """A streamproc command with its log in a file."""

    def __init__(self, log: Path, *arguments: object, module: str = "streamproc", **environment: str) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                env=clean_environment() | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def logged(self, text: str, times: int = 1) -> bool:
        """Return whether it has logged a text."""
        log = self.log.read_text()
        assert self._process.poll() is None or text in log, log
        return log.count(text) >= times

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return self._process.wait(60)

    def end(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """Stop it, and return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signum)
        code = self._process.wait(60)
        sys.stderr.write(self.log.read_text())  # shown if a test fails
        return code


@pytest.fixture
def settings(brokers: str, topic_prefix: str) -> Settings:
    """Topics that only this test uses."""
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    asyncio.run(kafka_topics.apply(settings))
    return settings


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """Start commands that end with the test."""
    started: list[Process] = []

    def begin(*arguments: object, **environment: str) -> Process:
        where = ("--brokers", settings.brokers, "--topic-prefix", settings.topic_prefix)
        process = Process(tmp_path / f"{len(started)}.log", *arguments, *where, **environment)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.end(signal.SIGKILL)


async def publish(settings: Settings, *controls: ControlEvent) -> None:
    """Publish decisions to the control topic, as a worker does."""
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for one in controls:
            value = one.model_dump_json(exclude_none=True).encode()
            await producer.send_and_wait(settings.topic("control"), value, key=one.run_id.encode())


async def committed(settings: Settings) -> int:
    """Return the number of control events that the notifiers have committed."""
    group = settings.model_copy(update={"group": f"{settings.topic_prefix}-notify"})
    found = await committed_offsets(group, settings.topic("control"), list(range(settings.partitions)))
    return sum(found.values())


@pytest.mark.long
async def test_a_stuck_agent_reaches_a_person(settings: Settings, start: Start, receiver: Receiver) -> None:
    worker = start("worker")
    notifier = start("notify", STREAMPROC_NOTIFY=f"{receiver.json_url} {receiver.ntfy_url}")
    await until(lambda: notifier.logged("partitions="), 60)

    async with TurnPublisher(settings=settings) as turns:
        await turns.run_started(run_id="stuck", workflow="bugfix", tenant="acme")
        for number in range(6):
            await turns.turn(run_id="honest", node="coder", output=f"Step {number} is done.")
            await turns.turn(run_id="stuck", node="coder", task_id="T-7", output="I will try again.")
        await turns.operator_stop(run_id="honest", by="ann", reason="enough")
        await turns.turn(run_id="stuck", node="coder", output="I will try again.")

    await until(lambda: len(receiver.posts) >= 4, 60, "two notifications at two destinations")
    assert notifier.end() == 0
    assert worker.end() == 0
    assert {post["topic"] for _, post in receiver.posts if "topic" in post} == {"agents"}
    webhook = Receiver()
    webhook.posts = [(path, post) for path, post in receiver.posts if path == "/hook"]
    by_run = {notice["run_id"]: notice for notice in webhook.notices()}
    assert len(webhook.posts) == 2
    stuck = by_run["stuck"]["notification"]
    assert (stuck["type"], stuck["agent"], stuck["task_id"], stuck["urgency"]) == (
        "LOOP_DETECTED", "coder", "T-7", "HIGH",
    )  # fmt: skip
    assert "LOOP001 at turn 2" in stuck["evidence"]
    assert (by_run["stuck"]["workflow"], by_run["stuck"]["tenant"]) == ("bugfix", "acme")
    assert by_run["honest"]["notification"]["type"] == "STOP"
    assert "by: ann" in by_run["honest"]["notification"]["evidence"]


@pytest.mark.long
async def test_a_fleet_command_notifies_people_once(settings: Settings, start: Start, receiver: Receiver) -> None:
    workers = [start("worker"), start("worker")]
    notifier = start("notify", "--to", receiver.json_url)
    await until(lambda: notifier.logged("partitions="), 60)
    await until(lambda: all(worker.logged("ready partitions=") for worker in workers), 90)

    assert start("stop-all", "--by", "ann", "--why", "runaway").wait() == 0
    await until(lambda: len(receiver.notices()) == 1, 60, "the stop")
    assert start("clear", "--by", "ann").wait() == 0
    assert start("pause-all", "--by", "bob", "--why", "deploy").wait() == 0
    await until(lambda: len(receiver.notices()) >= 2, 60, "the pause")

    assert notifier.end() == 0
    stop, pause = (notice["notification"] for notice in receiver.notices())
    assert (stop["type"], stop["urgency"]) == ("STOP", "CRITICAL")
    assert "by: ann" in stop["evidence"]
    assert "runaway" in stop["evidence"]
    assert (pause["type"], pause["urgency"]) == ("PAUSE", "MEDIUM")


@pytest.mark.long
async def test_the_next_notifier_delivers_what_a_killed_one_did_not(
    settings: Settings, start: Start, receiver: Receiver
) -> None:
    receiver.open.clear()
    first = start("notify", "--to", receiver.json_url)
    await until(lambda: first.logged("partitions="), 60)
    await publish(settings, *[control(n, run_id=f"r{n}") for n in range(8)])
    await until(lambda: receiver.calls, 60, "the first notification to be on its way")
    first.end(signal.SIGKILL)
    receiver.posts.clear()
    assert await committed(settings) == 0
    receiver.open.set()

    second = start("notify", "--to", receiver.json_url)

    await until(lambda: {notice["run_id"] for notice in receiver.notices()} == {f"r{n}" for n in range(8)}, 90)

    async def all_committed() -> bool:
        return await committed(settings) == 8

    await until(all_committed, 60, "the offsets to be committed", every_s=0.2)
    assert second.end() == 0


async def test_a_new_group_starts_now_or_at_the_beginning(settings: Settings, start: Start, receiver: Receiver) -> None:
    await publish(settings, control(1, run_id="before"), control(2, run_id="also-before"))
    notifier = start("notify", "--to", receiver.json_url)
    await until(lambda: notifier.logged("partitions="), 60)
    await publish(settings, control(3, run_id="after"))
    await until(lambda: receiver.notices(), 60)
    assert notifier.end() == 0
    assert [notice["run_id"] for notice in receiver.notices()] == ["after"]

    history = start("notify", "--to", receiver.json_url, "--group", "history", "--from-beginning")

    await until(lambda: {notice["run_id"] for notice in receiver.notices()} >= {"before", "also-before"}, 60)
    assert history.end() == 0


async def test_an_unreadable_control_event_is_skipped(settings: Settings, start: Start, receiver: Receiver) -> None:
    notifier = start("notify", "--to", receiver.json_url)
    await until(lambda: notifier.logged("partitions="), 60)
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        await producer.send_and_wait(settings.topic("control"), b"nonsense", key=b"r1")
        nested = b'{"id": "c", "odd": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"
        await producer.send_and_wait(settings.topic("control"), nested, key=b"r1")
    await publish(settings, control(1))

    await until(lambda: receiver.notices(), 60)

    async def all_committed() -> bool:
        return await committed(settings) == 3

    await until(all_committed, 60, "all to be committed", every_s=0.2)
    assert notifier.logged("skipped an unreadable control event")
    assert notifier.end() == 0


@pytest.mark.long
async def test_a_kafka_outage_loses_and_repeats_no_notification(
    own_broker: Broker, receiver: Receiver, tmp_path: Path
) -> None:
    port = free_port()
    settings = load_settings(brokers=f"127.0.0.1:{port}", topic_prefix="outage", partitions=2)
    where = ("--brokers", settings.brokers, "--topic-prefix", "outage")
    notifier = Process(tmp_path / "notify.log", "notify", "--to", receiver.json_url, *where)
    try:
        await until(lambda: notifier.logged("cannot read control events"), 60)
        await asyncio.to_thread(own_broker.start, port)
        await kafka_topics.apply(settings)
        await until(lambda: notifier.logged("partitions="), 60)
        receiver.open.clear()
        await publish(settings, *[control(n, run_id=f"r{n}") for n in range(4)])
        await until(lambda: receiver.calls, 60, "the first notification to be on its way")

        own_broker.kill()
        await until(lambda: notifier.logged("cannot read control events", 2), 60, "the loss to be noticed")
        receiver.open.set()
        await until(lambda: receiver.notices(), 60, "what was read before the outage")

        await asyncio.to_thread(own_broker.start, port)
        await publish(settings, *[control(n, run_id=f"r{n}") for n in range(4, 6)])
        await until(lambda: len(receiver.notices()) >= 6, 90, "the rest, and what came after it")

        async def all_committed() -> bool:
            return await committed(settings) == 6

        await until(all_committed, 60, "the offsets to be committed", every_s=0.2)
    finally:
        code = notifier.end()
    assert code == 0
    assert sorted(notice["run_id"] for notice in receiver.notices()) == [f"r{n}" for n in range(6)]
