"""One destination: what waits for it, how fast it goes out, and what is tried again.

- Up to `burst` notifications go out at once, then `per_minute`; what comes faster waits for its turn and goes out
  together, as one summary. Nothing is dropped for coming too fast.
- What was not taken is tried again, later and later, with jitter. One that is never taken does not block others: it
  goes to the end of the queue.
- What could not be sent within `give_up_after_s`, or was pushed out of a full queue, is *lost*: counted, logged, and
  told in the next message that goes through.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from streamproc.model.notification import Message, Notice, message_of, summary_of
from streamproc.notify.notification_config import NotificationConfig, Rate
from streamproc.notify.token_bucket import Bucket

log = logging.getLogger(__name__)

WAITING_MAX: Final = 2_000  # notifications; a summary of more says nothing
RETRY_MAX_S: Final = 60.0  # a service that is back is noticed within a minute


class Sender(Protocol):
    """Where messages go."""

    name: str

    async def send(self, message: Message) -> str:
        """Send; empty: it was taken, else why not."""
        ...


class Waiting(NamedTuple):
    """A notification on its way, since when, and whom to tell that it is settled: sent, or lost."""

    notice: Notice
    since_s: float
    settled: Callable[[], None]


class DeliveryQueue:
    """The queue of one destination. `run` serves it until it is cancelled."""

    def __init__(
        self,
        sender: Sender,
        plan: NotificationConfig,
        *,
        as_json: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = sender.name
        self.sent = 0
        """Notifications that the service took, those in summaries among them."""
        self.messages = 0
        """Messages that it took."""
        self.failed = 0
        """Tries that failed."""
        self.lost = 0
        """Notifications that were given up."""
        self._sender = sender
        self._as_json = as_json
        self._clock = clock
        self._bucket = _bucket(plan.rate)
        self._retry_first_s = plan.retry_first_s
        self._give_up_after_s = plan.give_up_after_s
        self._waiting: deque[Waiting] = deque()
        self._came = asyncio.Event()
        self._untold = 0  # of the lost ones
        self._failures = 0  # in a row

    @property
    def waiting(self) -> int:
        """Notifications that are not settled."""
        return len(self._waiting)

    def put(self, notice: Notice, settled: Callable[[], None]) -> None:
        """Take a notification in. Never waits."""
        self._waiting.append(Waiting(notice, self._clock(), settled))
        if len(self._waiting) > WAITING_MAX:
            self._lose([self._waiting.popleft()], f"more than {WAITING_MAX} wait")
        self._came.set()

    async def run(self) -> None:
        """Send what waits."""
        while True:
            while not self._waiting:
                self._came.clear()
                await self._came.wait()
            held_back = False
            while wait_s := self._bucket.wait_s(self._clock()):
                held_back = True
                await asyncio.sleep(wait_s)
            self._expire()
            if self._waiting:
                await self._send(self._take(all_of_them=held_back))

    def _take(self, *, all_of_them: bool) -> list[Waiting]:
        count = len(self._waiting) if all_of_them else 1
        return [self._waiting.popleft() for _ in range(count)]

    async def _send(self, together: list[Waiting]) -> None:
        telling = self._untold
        try:
            problem = await self._sender.send(self._message(together))
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(together))  # unsettled: they come again after a restart
            raise
        if problem:
            self._waiting.extend(together)
            await self._wait_after(problem)
            return
        self._bucket.take(self._clock())
        if self._failures:
            log.info("%s takes notifications again", self.name)
        self._failures = 0
        self._untold -= telling
        self.messages += 1
        self.sent += len(together)
        _settle(together)

    def _message(self, together: list[Waiting]) -> Message:
        notices = [waiting.notice for waiting in together]
        if len(notices) == 1:
            return message_of(notices[0], as_json=self._as_json, lost=self._untold)
        return summary_of(notices, as_json=self._as_json, lost=self._untold)

    async def _wait_after(self, problem: str) -> None:
        longest_s = min(RETRY_MAX_S, self._retry_first_s * 2**self._failures)
        self.failed += 1
        self._failures += 1
        wait_s = longest_s * random.uniform(0.5, 1.0)  # so that many notifiers do not come as one
        if self._failures == 1:
            log.warning("%s does not take notifications (%s); trying again", self.name, problem)
        await asyncio.sleep(wait_s)

    def _expire(self) -> None:
        limit_s = self._clock() - self._give_up_after_s
        old = [waiting for waiting in self._waiting if waiting.since_s < limit_s]
        if old:
            self._waiting = deque(waiting for waiting in self._waiting if waiting.since_s >= limit_s)
            self._lose(old, f"not taken within {self._give_up_after_s:g} s")

    def _lose(self, given_up: list[Waiting], why: str) -> None:
        self.lost += len(given_up)
        self._untold += len(given_up)
        for waiting in given_up:
            notice = waiting.notice
            log.error(
                "lost for %s (%s): %s %s of run %s (%s), control event %s", self.name, why,
                notice.notification.urgency, notice.notification.type, notice.run_id, notice.code, notice.control_id,
            )  # fmt: skip
        _settle(given_up)


def _settle(together: Iterable[Waiting]) -> None:
    for waiting in together:
        waiting.settled()


def _bucket(rate: Rate) -> Bucket:
    return Bucket(rate.burst, rate.per_minute / 60)
