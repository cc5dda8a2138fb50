"""A topic that a worker writes beside its decisions: what people see, and nothing that a guard waits for.

It has a producer of its own, so that neither a missing right nor a slow broker touches decisions. A worker goes on
without the topic, and says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError

from streamproc.kafka import topics
from streamproc.kafka.options import connection_options
from streamproc.kafka.session import Backoff, reconnecting, run_in_own_task
from streamproc.settings import Settings
from streamproc.worker.limits import SIDE_DENIED_S, SIDE_LEAVE_S, SIDE_TIMEOUT_S

log = logging.getLogger("streamproc.worker")


class SideTopic:
    """Connects to the topic of a role for as long as `run` runs; `without` says what is missing without it."""

    def __init__(self, settings: Settings, role: str, without: str, **options: Any) -> None:
        self.name = settings.topic(role)
        self.stopping = asyncio.Event()
        """Set it to end `run`."""
        self._settings = settings
        self._role = role
        self._without = without
        self._options = {"acks": 1, "request_timeout_ms": int(SIDE_TIMEOUT_S * 1000), **options}
        self._logged = ""

    async def run(self, work: Callable[[AIOKafkaProducer, Backoff], Awaitable[None]]) -> None:
        """Do the work with a connected producer, again after each failure, as far as broker, topic and rights allow."""

        async def session(backoff: Backoff) -> None:
            await self._session(work, backoff)

        def report(_error: Exception) -> None:
            """Leave an outage to the other parts of the worker, which log it."""

        await reconnecting(session, report, purpose=f"writing {self.name}", stop=self.stopping)

    async def pause(self, seconds: float) -> None:
        """Wait, until `stopping` is set at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()

    def works(self) -> None:
        """Note that a record was written: a later failure is logged again."""
        self._logged = ""

    async def _session(self, work: Callable[[AIOKafkaProducer, Backoff], Awaitable[None]], backoff: Backoff) -> None:
        if self.name not in await topics.partitions(self._settings):
            await self._go_on_without(f"topic {self.name} does not exist, or this user may not see it")
            return
        producer = AIOKafkaProducer(
            **connection_options(self._settings), client_id=f"{self._settings.worker_group}-{self._role}",
            **self._options,
        )  # fmt: skip
        try:
            await producer.start()
            await work(producer, backoff)
        except TopicAuthorizationFailedError:
            await self._go_on_without(f"not allowed to write to {self.name}")
        finally:
            await run_in_own_task(producer.stop(), SIDE_LEAVE_S)

    async def _go_on_without(self, what: str) -> None:
        if what != self._logged:
            self._logged = what
            log.warning(
                "%s; this worker works on, but %s: run `streamproc topics apply`, and `streamproc topics acls --role "
                "worker` if Kafka uses access control", what, self._without,
            )  # fmt: skip
        await self.pause(SIDE_DENIED_S)
