"""The queue of one destination: rate limit, retries and loss.

- Up to `burst` messages are sent at once, then `per_minute`. Notifications that arrive faster wait, and are sent
  together as one summary. None is dropped for arriving too fast.
- A rejected notification is retried with growing, jittered delays. It moves to the end of the queue, so one that is
  never accepted does not block the others.
- A notification is *lost* if it cannot be sent within `give_up_after_s`, or if the queue is full. It is counted,
  logged, and reported in the next message that is accepted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from streamproc.model.notification import Message, Notice, message_of, summary_of
from streamproc.notify.notification_config import NotificationConfig, Rate
from streamproc.notify.service import Service

log = logging.getLogger(__name__)

WAITING_MAX: Final = 2_000  # notifications; a summary of more is of no use
RETRY_MAX_S: Final = 60.0  # a service that recovers gets its messages within a minute


class TokenBucket:
    """Holds up to `burst` tokens and gets `per_s` more each second. It starts full."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """Return how long until a token is available; 0 if one is."""
        self._fill(now_s)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._per_s

    def take(self, now_s: float) -> None:
        """Take one token."""
        self._fill(now_s)
        self._tokens = max(0.0, self._tokens - 1)

    def _fill(self, now_s: float) -> None:
        if self._at_s is not None:
            self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s


class OutgoingNotice(NamedTuple):
    """A notification in the queue, since when, and the callback for when it is settled: sent or lost."""

    notice: Notice
    since_s: float
    settled: Callable[[], None]


class DeliveryQueue:
    """The queue of one destination. `run` serves it until cancelled."""

    def __init__(
        self,
        service: Service,
        config: NotificationConfig,
        *,
        as_json: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = service.name
        self.sent = 0
        """Notifications that the service accepted, including those in summaries."""
        self.messages = 0
        """Messages that the service accepted."""
        self.failed = 0
        """Failed attempts."""
        self.lost = 0
        """Notifications that were given up."""
        self._service = service
        self._as_json = as_json
        self._clock = clock
        self._bucket = _bucket(config.rate)
        self._retry_first_s = config.retry_first_s
        self._give_up_after_s = config.give_up_after_s
        self._waiting: deque[OutgoingNotice] = deque()
        self._added = asyncio.Event()
        self._unreported = 0  # lost notifications that no message has reported yet
        self._failures = 0  # in a row

    @property
    def waiting(self) -> int:
        """The number of queued notifications."""
        return len(self._waiting)

    def put(self, notice: Notice, settled: Callable[[], None]) -> None:
        """Add a notification. Never blocks."""
        self._waiting.append(OutgoingNotice(notice, self._clock(), settled))
        if len(self._waiting) > WAITING_MAX:
            self._lose([self._waiting.popleft()], f"queue limit of {WAITING_MAX} reached")
        self._added.set()

    async def run(self) -> None:
        """Send queued notifications."""
        while True:
            while not self._waiting:
                self._added.clear()
                await self._added.wait()
            held_back = False
            while wait_s := self._bucket.wait_s(self._clock()):
                held_back = True
                await asyncio.sleep(wait_s)
            self._expire()
            if self._waiting:
                await self._send(self._pop(everything=held_back))

    def _pop(self, *, everything: bool) -> list[OutgoingNotice]:
        count = len(self._waiting) if everything else 1
        return [self._waiting.popleft() for _ in range(count)]

    async def _send(self, batch: list[OutgoingNotice]) -> None:
        reported = self._unreported
        try:
            problem = await self._service.send(self._message(batch))
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))  # not settled, so they are read again after a restart
            raise
        if problem:
            self._waiting.extend(batch)
            await self._wait_after(problem)
            return
        self._bucket.take(self._clock())
        if self._failures:
            log.info("%s accepts notifications again", self.name)
        self._failures = 0
        self._unreported -= reported
        self.messages += 1
        self.sent += len(batch)
        _settle(batch)

    def _message(self, batch: list[OutgoingNotice]) -> Message:
        notices = [outgoing.notice for outgoing in batch]
        if len(notices) == 1:
            return message_of(notices[0], as_json=self._as_json, lost=self._unreported)
        return summary_of(notices, as_json=self._as_json, lost=self._unreported)

    async def _wait_after(self, problem: str) -> None:
        longest_s = min(RETRY_MAX_S, self._retry_first_s * 2**self._failures)
        self.failed += 1
        self._failures += 1
        wait_s = longest_s * random.uniform(0.5, 1.0)  # many notifiers must not retry in step
        if self._failures == 1:
            log.warning("%s rejects notifications (%s); retrying", self.name, problem)
        await asyncio.sleep(wait_s)

    def _expire(self) -> None:
        limit_s = self._clock() - self._give_up_after_s
        expired = [outgoing for outgoing in self._waiting if outgoing.since_s < limit_s]
        if expired:
            self._waiting = deque(outgoing for outgoing in self._waiting if outgoing.since_s >= limit_s)
            self._lose(expired, f"not accepted within {self._give_up_after_s:g} s")

    def _lose(self, lost: list[OutgoingNotice], why: str) -> None:
        self.lost += len(lost)
        self._unreported += len(lost)
        for outgoing in lost:
            notice = outgoing.notice
            log.error(
                "notification lost for %s (%s): %s %s of run %s (%s), control event %s", self.name, why,
                notice.notification.urgency, notice.notification.type, notice.run_id, notice.code, notice.control_id,
            )  # fmt: skip
        _settle(lost)


def _settle(batch: Iterable[OutgoingNotice]) -> None:
    for outgoing in batch:
        outgoing.settled()


def _bucket(rate: Rate) -> TokenBucket:
    return TokenBucket(rate.burst, rate.per_minute / 60)
