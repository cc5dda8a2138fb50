"""A broker that is away at the start, and one that leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from deploy.local.kafka import free_port
from streamproc import topics as kafka_topics
from streamproc.errors import Unavailable
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, expected_ids, gather_controls, log_of_loops

if TYPE_CHECKING:
    from deploy.local.kafka import Broker

NOBODY = "127.0.0.1:1"


async def test_the_worker_waits_for_its_broker_and_outlives_its_fall(own_broker: Broker, start_worker) -> None:
    port = free_port()
    settings = settings_for(f"127.0.0.1:{port}", "outage")
    topics = Topics(settings)
    records = log_of_loops(20)
    third = len(records) // 3
    worker = start_worker(settings)
    await until(lambda: worker.said("does not answer: start it, or set STREAMPROC_BROKERS"), 30)

    await asyncio.to_thread(own_broker.start, port)
    await until(lambda: worker.said("run `streamproc topics apply`"), 60)
    await kafka_topics.apply(settings)
    await worker.ready()
    await topics.send(records[:third])
    await gather_controls(topics, expected_ids(records[:third]))

    await topics.send(records[third : 2 * third])
    own_broker.kill()
    await asyncio.to_thread(own_broker.start, port)
    await topics.send(records[2 * third :])

    controls = await gather_controls(topics, expected_ids(records), 90)
    await topics.done()
    assert {control["id"] for control in controls} == expected_ids(records)
    assert worker.end() == 0
    assert worker.text.count("starts brokers=") == 1, "it went on, and was not started anew"


async def test_a_worker_with_little_patience_gives_up_and_says_why(start_worker) -> None:
    worker = start_worker(settings_for(NOBODY, "nobody"), give_up_after_s=1)
    await until(lambda: not worker.running, 30)
    assert worker.end() == 1
    assert f"gave up: broker at {NOBODY} does not answer" in worker.text


async def test_a_worker_that_still_waits_for_its_broker_stops_when_asked(start_worker) -> None:
    worker = start_worker(settings_for(NOBODY, "nobody"))
    await until(lambda: worker.said("does not answer"), 30)
    assert worker.end() == 0


@pytest.mark.parametrize("ask", [kafka_topics.apply, kafka_topics.check])
async def test_topics_say_that_the_broker_is_away_and_what_to_do(ask) -> None:
    with pytest.raises(Unavailable, match=r"broker at .* does not answer: start it, or set STREAMPROC_BROKERS"):
        await ask(settings_for(NOBODY, "nobody"))
