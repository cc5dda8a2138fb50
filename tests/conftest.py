"""What every test may ask for: a broker, a Redis, names of its own."""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING

import hypothesis
import pytest

from deploy.local.kafka import Broker
from deploy.local.redis import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A build of the core may be there, and be older than the sources: only `make test-compiled` wants one.
os.environ.setdefault("STREAMPROC_CORE", "python")

NEEDS = {"kafka": {"brokers", "own_broker", "secured"}, "redis": {"redis_url", "own_redis", "secured_redis"}}

# No deadlines: a loaded machine is not a bug. A failure prints what reproduces it.
hypothesis.settings.register_profile("streamproc", deadline=None, print_blob=True)
hypothesis.settings.load_profile("streamproc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for a broker or a Redis, and run the files with such tests first.

    They wait a lot and have time limits, the others need the processor and have none: `make test` runs two processes,
    and the quick files at the end keep both busy.
    """
    waiting = set()
    for item in items:
        for marker, fixtures in NEEDS.items():
            if fixtures.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
        if any(item.get_closest_marker(marker) for marker in NEEDS):
            waiting.add(item.path)
    items.sort(key=lambda item: item.path not in waiting)


@pytest.fixture(scope="session")
def brokers() -> str:
    """Addresses of the real Kafka that the whole run shares. Tests keep apart by `topic_prefix`."""
    addresses = os.environ.get("STREAMPROC_BROKERS")
    if not addresses:
        pytest.fail(
            "This test talks to a real Kafka and STREAMPROC_BROKERS names none. `make test` starts one "
            "(for a part: make test ARGS=tests/worker). Without such tests: pytest -m 'not kafka and not redis'."
        )
    return addresses


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The real Redis that the whole run shares. Tests keep apart by names of their own (`topic_prefix`)."""
    url = os.environ.get("STREAMPROC_REDIS")
    if not url:
        pytest.fail(
            "This test talks to a real Redis and STREAMPROC_REDIS names none. `make test` starts one "
            "(for a part: make test ARGS=tests/client). Without such tests: pytest -m 'not kafka and not redis'."
        )
    return url


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """A prefix for topics and groups that no other test, and no other run, uses."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{name[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine reaches the test, neither from the environment nor from a `.env` file."""
    for name in list(os.environ):
        if name.startswith("STREAMPROC_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A real Kafka for one test, to `kill()` and to `start(port)` again. Not started yet."""
    broker = Broker(tmp_path / "kafka")
    yield broker
    broker.kill()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A real Redis for one test, to `kill()` and to `start(port)` again. Not started yet."""
    server = Server(tmp_path / "redis")
    yield server
    server.kill()
