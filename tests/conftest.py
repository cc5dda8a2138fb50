"""Fixtures for all tests: a broker, a Redis, unique names, a clean environment."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from deploy.local.kafka import MORTAL, Broker
from deploy.local.redis import Server
from streamproc.core.compiled import is_built

if "STREAMPROC_CORE" not in os.environ:  # a build of other sources would be refused with a warning each time
    os.environ["STREAMPROC_CORE"] = "compiled" if is_built() else "python"

SERVICES = {name: os.environ.get(name) for name in ("STREAMPROC_BROKERS", "STREAMPROC_REDIS")}
"""Addresses that `make test` gives."""

pytest_plugins = ["tests.fixtures"]  # loaded after this line, as they import the core

NEEDS = {"kafka": {"brokers", "own_broker", "secured"}, "redis": {"redis_url", "own_redis", "secured_redis"}}

# No deadlines: a busy machine is not a bug. A failure prints how to reproduce it.
hypothesis.settings.register_profile("streamproc", deadline=None, print_blob=True)
hypothesis.settings.load_profile("streamproc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a broker or a Redis, and run the files with such tests first.

    They take long because they wait. `make test` runs files in several processes: with the short ones last, all of them
    finish at about the same time.
    """
    slow = set()
    for item in items:
        for marker, fixtures in NEEDS.items():
            if fixtures.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
        if any(item.get_closest_marker(marker) for marker in NEEDS):
            slow.add(item.path)
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def patient_listeners() -> None:
    """Let listeners wait for the broker for as long as a busy machine takes; processes that tests start do not."""
    from streamproc.client import HaltListener  # takes the core with it

    HaltListener.__init__.__kwdefaults__["start_timeout_s"] = 60.0


@pytest.fixture(scope="session")
def brokers() -> str:
    """Addresses of the real Kafka that all tests share. `topic_prefix` keeps them apart."""
    addresses = SERVICES["STREAMPROC_BROKERS"]
    if not addresses:
        pytest.fail(
            "This test needs a real Kafka, and STREAMPROC_BROKERS is not set. Run `make test`, which starts one "
            "(a part: `make test ARGS=tests/worker`), or deselect such tests: pytest -m 'not kafka and not redis'"
        )
    return addresses


@pytest.fixture(scope="session")
def redis_url() -> str:
    """URL of the real Redis that all tests share. `topic_prefix` keeps them apart."""
    url = SERVICES["STREAMPROC_REDIS"]
    if not url:
        pytest.fail(
            "This test needs a real Redis, and STREAMPROC_REDIS is not set. Run `make test`, which starts one "
            "(a part: `make test ARGS=tests/client`), or deselect such tests: pytest -m 'not kafka and not redis'"
        )
    return url


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """A prefix for topics and groups, unique to this test and this run."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{name[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide this machine's settings from the test: the environment and any `.env` file. Processes that the test starts
    run the core that the test runs."""
    for name in list(os.environ):
        if name.startswith("STREAMPROC_") and name != "STREAMPROC_CORE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("STREAMPROC_HOME", str(tmp_path / "no-live-log"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A real Kafka for one test, not started yet. The test may `kill()` it and `start(port)` it again."""
    broker = Broker(tmp_path / "kafka", MORTAL)
    yield broker
    broker.kill()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A real Redis for one test, not started yet. The test may `kill()` it and `start(port)` it again."""
    server = Server(tmp_path / "redis")
    yield server
    server.kill()
