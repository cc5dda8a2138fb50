"""From control events to notifications: which row of the table, told already or not, and to whom it goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamproc.notify.dedup import Dedup
from streamproc.notify.delivery_queue import DeliveryQueue
from streamproc.notify.triggers import notice_of, trigger_of

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent
    from streamproc.model.notification import Notice
    from streamproc.notify.notification_config import Destination, NotificationConfig

Settled = Callable[[], None]


@dataclass(frozen=True, slots=True)
class NotifierCounts:
    """What was done since the start. `held_back` are others of a series that was told already; `lost` and `sent`
    count a notification once for each destination."""

    events: int
    notices: int
    repeated: int
    held_back: int
    waiting: int
    sent: int
    messages: int
    failed_tries: int
    lost: int

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class Notifier:
    """Decides, and hands to the queues of the destinations. It does not know where control events come from."""

    def __init__(
        self,
        plan: NotificationConfig,
        outgoing: list[tuple[Destination, DeliveryQueue]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._outgoing = outgoing
        self._repeats = Dedup(plan.repeat_after_s)
        self._clock = clock
        self._events = self._notices = 0
        self._in_flight: dict[str, list[Settled]] = {}

    async def run(self) -> None:
        """Serve the queues until cancelled."""
        await asyncio.gather(*(queue.run() for _, queue in self._outgoing))

    def take(self, control: ControlEvent, settled: Settled) -> None:
        """Take a control event in. `settled` is called once everything that came of it was sent or given up."""
        self._events += 1
        waiting = self._in_flight.get(control.id)
        if waiting is not None:  # read again, after a broken connection or by a worker that was killed
            waiting.append(settled)
            return
        notice, goes_to = self._decide(control)
        if notice is None or not goes_to:
            settled()
            return
        self._notices += 1
        self._in_flight[control.id] = [settled]
        left = len(goes_to)

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                for each in self._in_flight.pop(control.id):
                    each()

        for queue in goes_to:
            queue.put(notice, one_less)

    def _decide(self, control: ControlEvent) -> tuple[Notice | None, list[DeliveryQueue]]:
        if control.type == "run.resumed":
            self._repeats.begin_again(control.run_id)
        trigger = trigger_of(control)
        urgency = self._plan.urgency_of(trigger) if trigger is not None else None
        if trigger is None or urgency is None:
            return None, []
        notice = notice_of(control, trigger, urgency)
        goes_to = [queue for destination, queue in self._outgoing if destination.takes(notice, self._plan.minimum)]
        if not goes_to:
            return None, []
        held_back = self._repeats.admit(control, urgency, self._clock())
        if held_back is None:
            return None, []
        return notice.model_copy(update={"repeats": held_back}), goes_to

    @property
    def waiting(self) -> int:
        """Notifications that are not settled, of all destinations."""
        return sum(queue.waiting for _, queue in self._outgoing)

    @property
    def counts(self) -> NotifierCounts:
        """For the log and for metrics."""
        queues = [queue for _, queue in self._outgoing]
        return NotifierCounts(
            events=self._events,
            notices=self._notices,
            repeated=self._repeats.same,
            held_back=self._repeats.held_back,
            waiting=self.waiting,
            sent=sum(queue.sent for queue in queues),
            messages=sum(queue.messages for queue in queues),
            failed_tries=sum(queue.failed for queue in queues),
            lost=sum(queue.lost for queue in queues),
        )
