"""The composition of a worker, its log, and how it exits when it cannot continue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.options import connection_options
from streamproc.settings import load_settings
from streamproc.worker.composition import Worker
from streamproc.worker.faust_app import credentials_of
from streamproc.worker.logs import Calm
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import honest_run

BROKEN = """
from streamproc.policy import Policy
from streamproc.worker import app
Policy.engine = lambda policy: 1 / 0
app.RETRY_FIRST_S = 0.01
"""

SMALL = """
from streamproc.worker import composition, run_limits
run_limits.RUNS_MAX = composition.RUNS_MAX = 20
composition.REPORT_INTERVAL_S = 0.1
"""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_the_clients_of_faust_use_the_same_connection_options_as_all_others(protocol: str, mechanism: str) -> None:
    settings = load_settings(
        security_protocol=protocol, sasl_mechanism=mechanism, sasl_username="me", sasl_password="secret"
    )
    ours = connection_options(settings)
    theirs = credentials_to_aiokafka_auth(credentials_of(settings))
    assert (ours.pop("ssl_context") is None) == (theirs.pop("ssl_context", None) is None)
    ours.pop("bootstrap_servers")
    assert theirs == ours


def line(name: str, level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, message, (), None)


def test_a_repeated_line_of_another_library_is_logged_once_and_one_of_ours_each_time() -> None:
    calm = Calm()
    lost = line("aiokafka.consumer", logging.ERROR, "Failed fetch messages from %s: %s")
    assert [calm.filter(lost) for _ in range(3)] == [True, False, False]
    assert calm.filter(line("aiokafka.consumer", logging.ERROR, "something else"))
    halt = line("streamproc.worker.turn_processor", logging.INFO, "halt run=r")
    assert all(calm.filter(halt) for _ in range(3))
    assert not calm.filter(line("streamproc.worker.consumer", logging.INFO, "[^-ChunkConsumer]: Starting..."))
    assert calm.filter(line("streamproc.worker.consumer", logging.ERROR, "[^-ChunkConsumer]: Crashed"))


async def test_a_worker_that_keeps_crashing_exits_and_leaves_the_restart_to_its_supervisor(
    settings, start_worker
) -> None:
    worker = start_worker(settings, before=BROKEN)
    await until(lambda: not worker.running, 60)
    assert worker.end() == 1
    assert worker.text.count("worker crashed; restarting from committed offsets: ZeroDivisionError") == 4
    assert "worker crashed 5 times within 300 s; leaving the restart to its supervisor" in worker.text


async def test_a_worker_can_be_stopped_while_it_starts(settings, start_worker) -> None:
    worker = start_worker(settings)
    await until(lambda: worker.said("starts brokers="), 60)
    assert worker.end(signal.SIGINT) == 0
    assert "Traceback" not in worker.text


async def test_a_worker_without_a_partition_waits_for_one(brokers, topic_prefix, start_worker) -> None:
    settings = settings_for(brokers, topic_prefix, partitions=1)
    await kafka_topics.apply(settings)
    first, second = start_worker(settings), start_worker(settings)
    await until(lambda: "ready partitions=- " in first.text + second.text, 60)
    assert first.end() == 0
    await until(lambda: second.said("ready partitions=0 "), 60)
    assert second.end() == 0


async def test_a_flood_of_run_ids_stays_within_the_run_limit_and_is_logged(settings, topics, start_worker) -> None:
    worker = start_worker(settings, before=SMALL)
    await worker.ready()
    for wave in range(3):
        await topics.send([pair for number in range(60) for pair in honest_run(f"run-{wave}-{number}", 1)])
        await topics.done()
    await until(lambda: worker.said("run limit of 20 reached; evicted "), 30, "the worker to log it")
    await until(lambda: worker.said(" evicted=1"), 30, "the worker to count them")


async def test_a_part_that_does_not_end_does_not_hold_up_a_stop(caplog: pytest.LogCaptureFixture) -> None:
    """A Kafka client may wait for a request that is under way, however often it is cancelled."""
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()

    async def done(**_options: Any) -> None: ...

    def nothing(*_arguments: Any) -> None: ...

    pipelines = SimpleNamespace(retain=nothing)
    parts: Any = SimpleNamespace(
        app=SimpleNamespace(stop=done), heartbeats=SimpleNamespace(stop=done), pipelines=pipelines,
        account_pipelines=pipelines, store=SimpleNamespace(close=nothing), rocksdb_stores=None,
        publisher=SimpleNamespace(stop=done),
    )  # fmt: skip
    part = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)
    try:
        await asyncio.wait_for(Worker._end(parts, [part], 1.0, clean=True), 5)
    finally:
        ended.set()
        await part
    assert "parts of the worker do not end" in caplog.text
