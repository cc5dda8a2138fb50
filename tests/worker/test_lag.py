"""A worker that is behind says so, by how much, and when it is ready; on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.local.kafka import free_port
from streamproc.kafka import topics as kafka_topics
from tests.metrics.scraped import Scraped, probe, scrape
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, honest_run

# Until there is a file of this name, every event takes 20 ms. Slices are small, so the loop answers in between.
SLOW = """
import os, time
from streamproc.worker import consumer
from tests.feeding import wrap_engines
consumer.SLICE_RECORDS_MAX = 5
def slow(step, state, event, at_ms, position):
    if not os.path.exists({go!r}):
        time.sleep(0.02)
    return step(state, event, at_ms, position)
wrap_engines(slow)
"""


async def test_a_worker_is_ready_once_it_has_processed_what_was_there(
    brokers: str, topic_prefix: str, tmp_path: Path, start_worker: Callable[..., Any]
) -> None:
    settings = settings_for(brokers, topic_prefix, metrics=f"127.0.0.1:{free_port()}")
    await kafka_topics.apply(settings)
    url, go = f"http://{settings.metrics}", tmp_path / "go"
    await Topics(settings).send(honest_run("r", 1_500))
    published_s = time.time()
    start_worker(settings, before=SLOW.format(go=str(go)))

    async def behind() -> str:
        status, text = await probe(f"{url}/readyz")
        return text if status == 503 and "records to catch up with" in text else ""

    async def lagging() -> Scraped | None:
        status, _ = await probe(f"{url}/readyz")
        page = await scrape(url) if status else None
        return (
            page
            if page is not None and page.sum("streamproc_events_total") and page.sum("streamproc_lag_records")
            else None
        )

    async def done() -> bool:
        return (await probe(f"{url}/readyz"))[0] == 200

    text = await until(behind, 90, "the worker to be behind", every_s=0.1)
    assert text.count("partition") == 1
    asked_s = time.time()
    page = await until(lagging, 60, "the lag")
    assert page.sum("streamproc_lag_records") + page.sum("streamproc_events_total") == 1_500
    assert page.sum("streamproc_lag_seconds") >= asked_s - published_s - 0.5  # the broker's clock is estimated
    go.touch()
    await until(done, 60, "the worker to be ready", every_s=0.1)
    page = await scrape(url)
    assert page.sum("streamproc_events_total") == 1_500
    assert page.sum("streamproc_lag_records") == page.sum("streamproc_lag_seconds") == 0
