"""What aiokafka logs while a broker is away: of our clients next to nothing, of others all."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError

from deploy.local.kafka import Broker, free_port
from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Unavailable
from streamproc.kafka import retry_log, topics
from streamproc.kafka.retry_log import EVERY_S, GRACE_S, RETRIES, TEMPLATES_MAX, RetryFilter, ours, quiet_retries
from streamproc.kafka.session import Backoff, reconnecting
from streamproc.settings import load_settings
from tests.waiting import until

NOT_OF_A_CLIENT = "Kafka does not answer"  # how a guard judges a long outage

AGENT = """
import asyncio, sys
from streamproc.client import HaltListener, TurnPublisher
from streamproc.settings import load_settings

async def main():
    settings = load_settings(brokers=sys.argv[1], topic_prefix="quiet", partitions=2)
    async with TurnPublisher(settings=settings, block_ms_max=0) as turns, HaltListener(settings=settings) as halts:
        number = 0
        while True:
            number += 1
            await turns.turn(run_id="r1", node="coder", seq=number)
            if bool(turns.trouble) == bool(halts.trouble):
                print("away" if turns.trouble else "back", flush=True)
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _as_in_an_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands that other tests run in this process have silenced aiokafka, and marked all of its clients as ours."""
    for name, value in vars(RetryFilter()).items():
        monkeypatch.setattr(retry_log._filter, name, value)
    logger = logging.getLogger("aiokafka")
    level = logger.level
    logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(level)


def record(template: str, *args: object, level: int = logging.ERROR, name: str = "aiokafka") -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 1, template, args, None)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def shown(quiet: RetryFilter, clock: Clock, template: str, seconds: int) -> int:
    """Return how many of ten lines a second pass."""
    passed = 0
    for _ in range(seconds * 10):
        passed += quiet.filter(record(template, 1))
        clock.now_s += 0.1
    return passed


def test_retries_of_our_clients_pass_once_a_minute_and_not_while_an_outage_is_reported() -> None:
    clock = Clock()
    quiet = RetryFilter(clock)
    assert shown(quiet, clock, "Unable connect to node with id %s", 5) == 50  # of others
    with ours():
        assert shown(quiet, clock, "Unable connect to node with id %s", int(GRACE_S) - 1) == 0
        assert shown(quiet, clock, "Failed fetch messages from %s", 180) == 3
        quiet.reported_s = clock.now_s
        assert shown(quiet, clock, "Unable to update metadata from %s", int(EVERY_S) - 1) == 0
        clock.now_s += 2 * GRACE_S  # a new series
        assert shown(quiet, clock, "Unable to update metadata from %s", int(GRACE_S) - 1) == 0


def test_other_warnings_of_our_clients_pass_once_a_minute_each() -> None:
    clock = Clock()
    quiet = RetryFilter(clock)
    with ours():
        assert shown(quiet, clock, "Topic %s not found in cluster metadata", 120) == 2
        assert shown(quiet, clock, "Topic %s is not authorized for this client", 1) == 1
        assert quiet.filter(record("Discovered coordinator %s", 1, level=logging.INFO))
        for number in range(3 * TEMPLATES_MAX):
            quiet.filter(record(f"{number} {'x' * 1_000}"))
    assert len(quiet._passed) <= TEMPLATES_MAX
    assert max(map(len, quiet._passed)) < 200


def test_all_pass_at_level_debug(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    quiet = RetryFilter(clock)
    caplog.set_level(logging.DEBUG, "aiokafka")
    with ours():
        assert shown(quiet, clock, "Unable connect to node with id %s", 2) == 20


def test_the_retries_are_those_of_the_installed_aiokafka() -> None:
    sources = "".join(path.read_text() for path in Path(aiokafka.__file__).parent.rglob("*.py"))
    unbroken = re.sub(r"\"\\s+f?\"", "", sources)
    assert not [template for template in RETRIES if template not in unbroken]


async def test_another_client_in_the_process_logs_as_before(caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings(brokers=f"127.0.0.1:{free_port()}")

    def logged() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.name.startswith("aiokafka")]

    async with (
        TurnPublisher(settings=settings, block_ms_max=0, close_timeout_s=0) as turns,
        HaltListener(settings=settings, wait=False) as halts,
    ):
        await turns.turn(run_id="r1", node="coder")
        await until(lambda: turns.trouble and halts.trouble)
        with pytest.raises(Unavailable):
            await topics.check(settings)
        assert logged() == []
        consumer = AIOKafkaConsumer(bootstrap_servers=settings.brokers)
        for attempt in range(1, 4):
            with pytest.raises(KafkaConnectionError):
                await consumer.start()
            assert len(logged()) == attempt
        await consumer.stop()


async def test_what_a_session_does_itself_is_of_our_client(caplog: pytest.LogCaptureFixture) -> None:
    quiet_retries()
    stop = asyncio.Event()

    async def session(_backoff: Backoff) -> None:
        logging.getLogger("aiokafka").error("Unable connect to node with id %s", "ours")
        stop.set()

    await reconnecting(session, lambda _error: None, purpose="testing", stop=stop)
    logging.getLogger("aiokafka").error("Unable connect to node with id %s", "theirs")

    assert [one.args for one in caplog.records] == [("theirs",)]


@pytest.mark.long
async def test_an_agent_says_once_that_the_broker_is_gone_and_once_that_it_is_back(
    own_broker: Broker, tmp_path: Path
) -> None:
    port = free_port()
    settings = load_settings(brokers=f"127.0.0.1:{port}", topic_prefix="quiet", partitions=2)
    await asyncio.to_thread(own_broker.start, port)
    await topics.apply(settings)
    errors, states = tmp_path / "stderr", tmp_path / "stdout"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
    with errors.open("wb") as stderr, states.open("wb") as stdout:
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", AGENT, settings.brokers, cwd=tmp_path, stdout=stdout, stderr=stderr, env=clean
        )

    def state() -> str:
        return states.read_text().rpartition("\n")[0].rpartition("\n")[2]

    try:
        await until(lambda: state() == "back", 60)
        own_broker.kill()
        await until(lambda: states.read_text().count("away") > 100, 90)
        await asyncio.to_thread(own_broker.start, port)
        await until(lambda: state() == "back", 60)
    finally:
        agent.terminate()
        await agent.wait()
    lines = [line for line in errors.read_text().splitlines() if not line.startswith(NOT_OF_A_CLIENT)]
    assert sorted(line.partition(";")[0].partition(" (")[0] for line in lines) == [
        "receiving halts again",
        "receiving no halts for now",
        "turns are delivered again",
        "turns are not being delivered, and are buffered",
    ]
