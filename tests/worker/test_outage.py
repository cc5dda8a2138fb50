"""A broker that is away at the start, and what the log says of one that leaves later, which the faults (tests/faults)
cover."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from deploy.local.kafka import free_port
from streamproc.errors import Unavailable
from streamproc.kafka import topics as kafka_topics
from streamproc.worker.readiness import Patience
from tests.metrics.scraped import probe
from tests.waiting import until
from tests.worker.conftest import settings_for

NO_BROKER = "127.0.0.1:1"


async def test_a_worker_gives_up_after_the_time_limit_and_logs_why(start_worker) -> None:
    worker = start_worker(settings_for(NO_BROKER, "no-broker"), give_up_after_s=1)
    await until(lambda: not worker.running, 30)
    assert worker.end() == 1
    assert f"gave up: no Kafka broker answers at {NO_BROKER}: {NO_BROKER} refuses connections" in worker.text


async def test_a_worker_that_waits_for_its_broker_can_be_stopped(start_worker) -> None:
    worker = start_worker(settings_for(NO_BROKER, "no-broker"))
    await until(lambda: worker.said("no Kafka broker answers at"), 30)
    assert worker.end() == 0


def test_it_waits_until_the_time_limit_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    patience, away = Patience(10), Unavailable("away")
    while now[0] < 110:
        now[0] += patience.next_pause_s(away)
    assert now[0] == 110
    with pytest.raises(Unavailable, match="away"):
        patience.next_pause_s(away)


@pytest.mark.parametrize("ask", [kafka_topics.apply, kafka_topics.check])
async def test_topic_commands_report_an_absent_broker_with_a_remedy(ask) -> None:
    with pytest.raises(Unavailable, match=r"no Kafka broker answers at .* refuses connections, .*: start Kafka"):
        await ask(settings_for(NO_BROKER, "no-broker"))


@pytest.mark.long
async def test_a_worker_logs_a_few_lines_of_an_outage(own_broker, start_worker) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    settings = settings_for(f"127.0.0.1:{free_port()}", "quiet").model_copy(update={"metrics": metrics})
    port = int(settings.brokers.rpartition(":")[2])
    await asyncio.to_thread(own_broker.start, port)
    await kafka_topics.apply(settings)
    worker = start_worker(settings)
    await until(lambda: worker.said("ready partitions="), 60)

    own_broker.kill()
    await until(lambda: worker.said("receiving no fleet commands for now; reconnecting: "), 60)
    status, why = await probe(f"http://{metrics}/readyz")
    assert (status, "no broker answers" in why) == (503, True)
    await asyncio.to_thread(own_broker.start, port)
    await until(lambda: worker.said("receiving fleet commands again"), 60)

    warnings = re.findall(r"^.* (?:WARNING|ERROR) .*$", worker.text, re.MULTILINE)
    assert len(warnings) <= 5, "\n".join(warnings)
    assert worker.text.count("aiokafka") <= 2


@pytest.mark.long
async def test_the_first_worker_of_a_new_cluster_logs_no_error(own_broker, start_worker) -> None:
    """The cluster has no coordinator for any group until it has created its topic of offsets."""
    settings = settings_for(own_broker.address(own_broker.start()), "first")
    await kafka_topics.apply(settings)
    worker = start_worker(settings)
    await worker.ready()
    assert worker.said("has no coordinator for the group first-worker yet")
    assert " ERROR " not in worker.text
    assert worker.end() == 0
