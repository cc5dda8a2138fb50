"""Topics and workers for the tests of this folder."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

from streamproc.kafka import topics as kafka_topics
from streamproc.settings import Settings, load_settings
from tests.worker.running import CURSED, Topics, Way, WorkerProcess, run_sync


def settings_for(brokers: str, prefix: str, **options: object) -> Settings:
    """Settings of a deployment of its own; dead workers are missed soon."""
    return load_settings(**{"brokers": brokers, "topic_prefix": prefix, "session_timeout_s": 6.0, **options})


@pytest.fixture
def settings(brokers: str, topic_prefix: str) -> Settings:
    """A deployment that only this test uses, with its topics."""
    settings = settings_for(brokers, topic_prefix)
    run_sync(kafka_topics.apply(settings))
    return settings


@pytest.fixture
def topics(settings: Settings) -> Topics:
    return Topics(settings)


@pytest.fixture(scope="module", params=["batch", "stock"])
def path(request: pytest.FixtureRequest) -> Way:
    """The batch path and the stock path. A test that asks for it runs on both, which must behave alike."""
    way: Way = request.param
    return way


@pytest.fixture(scope="module")
def shared_settings(brokers: str, path: Way) -> Settings:
    """A deployment that the tests of one file share."""
    settings = settings_for(brokers, f"worker-tests-{uuid.uuid4().hex[:8]}")
    run_sync(kafka_topics.apply(settings))
    return settings


@pytest.fixture(scope="module")
def shared(
    shared_settings: Settings, path: Way, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Topics, WorkerProcess]]:
    """One worker for a file of tests that only watch it; its engine has a bug with nodes named "cursed"."""
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    worker = WorkerProcess(shared_settings, log, path, before=CURSED).start()
    run_sync(worker.ready())
    yield Topics(shared_settings), worker
    worker.end(signal.SIGKILL)
