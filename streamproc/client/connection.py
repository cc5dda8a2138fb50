"""What publisher and listener share of Kafka: the patience between tries, and which partitions a topic has."""

from __future__ import annotations

import random
from typing import Any, Final

from streamproc.errors import Unavailable
from streamproc.settings import Settings, load_settings

BACKOFF_FIRST_S: Final = 0.1  # a restarted broker is back in seconds: the first tries come quickly
BACKOFF_MAX_S: Final = 5.0
REQUEST_TIMEOUT_MS: Final = 15_000  # a healthy broker answers in milliseconds; aiokafka's 40 s is a long silence
CONNECT_TIMEOUT_S: Final = 20.0


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
            f"the broker at {settings.brokers} has no topic {', '.join(missing)}, or this user may not see it: "
            "run `streamproc topics apply`, or set STREAMPROC_TOPIC_PREFIX"
        )
    return found


def settings_of(brokers: str | None, settings: Settings | None) -> Settings:
    """The settings of a client: those given, else the environment's; `brokers` wins over both."""
    if settings is None:
        return load_settings(brokers=brokers)
    return settings if brokers is None else settings.model_copy(update={"brokers": brokers})
