"""Fixtures of the client's tests: topics for one test, and a stand-in for the worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings
from tests.client.records import Worker, open_worker


@pytest.fixture
async def settings(brokers: str, topic_prefix: str) -> Settings:
    """Settings whose topics exist on the real broker, for one test only."""
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=3)
    await topics.apply(settings)
    return settings


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[Worker]:
    """A stand-in for the worker that writes real records to the real topics."""
    async with open_worker(settings) as worker:
        yield worker
