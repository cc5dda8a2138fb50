"""Destinations whose URL names the user, the tenant or the workflow of the run: `mailto://…?to={user}`.

Each address has a queue of its own, so no summary shows one person the runs of another, and a rate limit counts for one
person. The names come from publishers: one that could be more than one address, or lead elsewhere, gets no
notification.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from pydantic import SecretStr

from streamproc.errors import InvalidSettings
from streamproc.kafka.log_limit import LogLimit
from streamproc.model.notification import Notice
from streamproc.notify.delivery_queue import DeliveryQueue
from streamproc.notify.notification_config import PLACE, Destination, NotificationConfig, address_of
from streamproc.notify.service import Service

QUEUES_MAX: Final = 500  # addresses of one destination; past it, those that have sent everything are forgotten
SAMPLE: Final = "ada@example.com"  # fits into every URL that is meant for names

log = logging.getLogger(__name__)
limited = LogLimit(log)


class AddressQueues:
    """The queues of one destination, by address. It counts as a `DeliveryQueue` does."""

    def __init__(self, destination: Destination, number: int, config: NotificationConfig) -> None:
        self._url = destination.url.get_secret_value()
        self._destination, self._number, self._config = destination, number, config
        self._queues: dict[str, tuple[DeliveryQueue, asyncio.Task[None]]] = {}
        self._open: Counter[str] = Counter()  # notifications that are not settled, by address
        self._gone = dict.fromkeys(("sent", "messages", "failed", "lost"), 0)
        sample = PLACE.sub(quote(SAMPLE, safe=""), self._url)
        self.name = self._queue(sample).name  # raises `InvalidSettings` for a URL that Apprise does not read

    def _queue(self, url: str) -> DeliveryQueue:
        service = Service(self._destination.model_copy(update={"url": SecretStr(url)}), self._number)
        return DeliveryQueue(service, self._config, as_json=self._destination.as_json)

    def put(self, notice: Notice, settled: Callable[[], None]) -> None:
        """Add a notification to the queue of its address. Never blocks."""
        address = address_of(self._url, notice)
        if address is None:
            settled()
            return
        found = self._queues.pop(address, None)
        if found is None:
            try:
                queue = self._queue(address)
            except InvalidSettings:  # of a service that takes no such name
                limited(logging.WARNING, self.name, "%s takes no notification for run=%s", self.name, notice.run_id)
                self._gone["lost"] += 1
                settled()
                return
            found = queue, asyncio.get_running_loop().create_task(queue.run())
        self._queues[address] = found
        self._open[address] += 1
        if len(self._queues) > QUEUES_MAX:
            self._forget()

        def done() -> None:
            self._open[address] -= 1
            settled()

        found[0].put(notice, done)

    def _forget(self) -> None:
        """Forget the queues of addresses that have nothing waiting, oldest first."""
        idle = [address for address in self._queues if not self._open[address]]
        for address in idle[: len(self._queues) - QUEUES_MAX]:
            queue, task = self._queues.pop(address)
            task.cancel()
            del self._open[address]
            for name in self._gone:
                self._gone[name] += getattr(queue, name)

    async def run(self) -> None:
        """Serve the queues until cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            for _, task in self._queues.values():
                task.cancel()

    @property
    def waiting(self) -> int:
        """The number of queued notifications."""
        return sum(queue.waiting for queue, _ in self._queues.values())

    @property
    def sent(self) -> int:
        """Notifications that the service accepted, including those in summaries."""
        return self._count("sent")

    @property
    def messages(self) -> int:
        """Messages that the service accepted."""
        return self._count("messages")

    @property
    def failed(self) -> int:
        """Failed attempts."""
        return self._count("failed")

    @property
    def lost(self) -> int:
        """Notifications that were given up."""
        return self._count("lost")

    def _count(self, name: str) -> int:
        return self._gone[name] + sum(int(getattr(queue, name)) for queue, _ in self._queues.values())


Queue = DeliveryQueue | AddressQueues


def queues_of(config: NotificationConfig) -> list[tuple[Destination, Queue]]:
    """Return the destinations with their queues. Raises `InvalidSettings` for a URL that Apprise does not read."""
    return [(one, _queue_of(one, number, config)) for number, one in enumerate(config.destinations, 1)]


def _queue_of(one: Destination, number: int, config: NotificationConfig) -> Queue:
    if PLACE.search(one.url.get_secret_value()):
        return AddressQueues(one, number, config)
    return DeliveryQueue(Service(one, number), config, as_json=one.as_json)
