"""A broker that is away at the start. What comes of one that leaves is among the faults (tests/faults)."""

from __future__ import annotations

import pytest

from streamproc.errors import Unavailable
from streamproc.kafka import topics as kafka_topics
from tests.waiting import until
from tests.worker.conftest import settings_for

NOBODY = "127.0.0.1:1"


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
