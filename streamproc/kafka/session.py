"""What publisher and listener share of Kafka: the patience between tries, and which partitions a topic has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final

from aiokafka.errors import KafkaConnectionError, KafkaError

from streamproc.errors import Unavailable
from streamproc.kafka.access import not_allowed
from streamproc.kafka.options import connection_options
from streamproc.kafka.topics import unavailable
from streamproc.settings import Settings, load_settings

BACKOFF_FIRST_S: Final = 0.1  # a restarted broker is back in seconds: the first tries come quickly
BACKOFF_MAX_S: Final = 5.0
REQUEST_TIMEOUT_MS: Final = 15_000  # a healthy broker answers in milliseconds; aiokafka's 40 s is a long silence
CONNECT_TIMEOUT_S: Final = 20.0
PROBE_EVERY_S: Final = 2.0
PROBE_TIMEOUT_S: Final = 20.0

EXPECTED: Final = (KafkaError, OSError, TimeoutError, Unavailable)  # what brokers and networks do to us


class Backoff:
    """How long to wait before the next try: doubling, capped, and jittered so that a fleet does not come as one."""

    def __init__(self) -> None:
        self._next_s = BACKOFF_FIRST_S

    def reset(self) -> None:
        """The last try went well."""
        self._next_s = BACKOFF_FIRST_S

    def next_s(self) -> float:
        """Seconds to wait now."""
        wait_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(BACKOFF_MAX_S, self._next_s * 2)
        return wait_s


async def run_until_one_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run until one ends, end the others, and raise its error. (A TaskGroup of Python 3.11 leaves its task counted
    as cancelled when a child fails.)"""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        _raise(task)


async def contained(coroutine: Coroutine[Any, Any, None], timeout_s: float | None = None) -> None:
    """Run in a task of its own. Where aiokafka waits for a task that it cancelled itself, the cancellation comes out
    of it and looks like ours; here it becomes a `ConnectionError`. Raises `TimeoutError` after `timeout_s`."""
    task = asyncio.create_task(coroutine)
    try:
        done, _ = await asyncio.wait([task], timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if task.done() and not task.cancelled():
            task.exception()  # seen, also where we were cancelled as it failed: else asyncio prints it at the end
    if not done:
        raise TimeoutError(f"took more than {timeout_s} s")
    _raise(task)


def _raise(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        raise ConnectionError("the Kafka client gave up one of its own tasks")
    task.result()


async def probe(client: Any) -> None:
    """Raise `Unavailable` as soon as no broker answers. (Of one broker among several, aiokafka takes care.)

    An aiokafka client that has lost all its brokers tries the addresses it knew for ever and logs each try; ours
    starts anew, from the bootstrap servers, and says so once.
    """
    while True:
        await asyncio.sleep(PROBE_EVERY_S)
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            # A broker closes a connection whose login is over (`connections.max.reauth.ms`) when it is used: once more.
            answered = await client.force_metadata_update() or await client.force_metadata_update()
        if not answered:
            raise Unavailable("the broker left")


def as_unavailable(settings: Settings, error: Exception) -> Unavailable:
    """The error as a person is told it."""
    if isinstance(error, Unavailable):
        return error
    denied = not_allowed(settings, error)
    if denied is not None:
        return denied
    if isinstance(error, (KafkaConnectionError, OSError, TimeoutError)):
        return unavailable(settings, error)
    return Unavailable(f"broker at {settings.brokers}: {type(error).__name__}: {error}")


async def partitions_of(client: Any, settings: Settings, *names: str) -> dict[str, list[int]]:
    """The partitions of our topics, by full name. Raises `Unavailable` that names the topics that are missing.

    All topics are listed, because asking for one by its name makes brokers with ``auto.create.topics.enable``
    create it, with the wrong settings.
    """
    cluster = await client.fetch_all_metadata()
    found = {topic: sorted(cluster.partitions_for_topic(topic) or ()) for topic in map(settings.topic, names)}
    missing = [topic for topic, partitions in found.items() if not partitions]
    if missing:
        raise Unavailable(
            f"the broker at {settings.brokers} has no topic {', '.join(missing)}, or this user may not see it "
            "(`streamproc topics acls`): run `streamproc topics apply`, or set STREAMPROC_TOPIC_PREFIX"
        )
    return found


def client_settings(brokers: str | None, settings: Settings | None) -> Settings:
    """The settings of a client: those given, else the environment's; `brokers` wins over both.

    Raises `InvalidSettings` where they cannot be used, so that a certificate that is not there is told now, and not
    by a connection that never comes.
    """
    if settings is None:
        settings = load_settings(brokers=brokers)
    elif brokers is not None:
        settings = settings.model_copy(update={"brokers": brokers})
    connection_options(settings)
    return settings
