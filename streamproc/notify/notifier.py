"""From control events to notifications: choose the trigger, deduplicate, and select the destinations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.fleet.watching import watch_readings
from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading
from streamproc.model.addresses import run_path, trace_address
from streamproc.model.control_types import ABOUT_NO_RUN
from streamproc.model.newest import Newest
from streamproc.notify.triggers import notice_of, subject_of, trigger_of
from streamproc.tracing.trace_context import split_traceparent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.fleet.watching import Watching
    from streamproc.model.controls import ControlEvent
    from streamproc.model.notification import Notice, Urgency
    from streamproc.notify.addresses import Queue
    from streamproc.notify.notification_config import Destination, NotificationConfig

IDS_MAX: Final = 20_000  # control events: some minutes of a fleet in which every run fails
SUBJECTS_MAX: Final = 20_000  # runs, fleet commands and shared accounts, for the same reason
SERIES_MAX: Final = 200  # of one subject


class _Series(NamedTuple):
    since_s: float
    urgency: Urgency
    halts: bool
    held_back: int


def _batch_of(control: ControlEvent) -> str:
    """Return the tasks of a batch: another one is another matter."""
    return " ".join(control.evidence.tasks or ()) if control.evidence is not None else ""


class Dedup:
    """Lets a control event notify once, and a series only with its first event until it gets more urgent, or halts.

    Remembers recent control events and series. Beyond its bounds it drops the oldest: an event may then notify twice,
    but none is lost.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._ids: Newest[str, None] = Newest(IDS_MAX)
        self._series: Newest[str, dict[tuple[str, str], _Series]] = Newest(SUBJECTS_MAX)
        self.same = 0
        """Number of control events that arrived again."""
        self.held_back = 0
        """Number of control events held back because their series notified within the window."""

    def admit(self, control: ControlEvent, urgency: Urgency, now_s: float) -> int | None:
        """Return None to hold a control event back; else how many of its series were held back before it."""
        if control.id in self._ids:
            self.same += 1
            return None
        self._ids[control.id] = None
        subject = subject_of(control)
        series = self._series[subject] = self._series.get(subject, {})
        key = (control.code, control.task_id or _batch_of(control))
        known = series.get(key)
        if known is not None and now_s - known.since_s < self._window_s and (urgency, control.halts) <= known[1:3]:
            series[key] = known._replace(held_back=known.held_back + 1)
            self.held_back += 1
            return None
        series.pop(key, None)
        series[key] = _Series(now_s, urgency, control.halts, 0)
        if len(series) > SERIES_MAX:
            del series[next(iter(series))]
        return known.held_back if known is not None else 0

    def reset(self, run_id: str) -> None:
        """Start new series for a run that was resumed."""
        self._series.pop(run_id, None)


def notifier_readings(notifier: Notifier, watching: Watching) -> Iterator[Reading]:
    """Yield what a notifier has counted, and whether workers decide."""
    counts = notifier.counts
    for outcome in definitions.NOTIFICATION_OUTCOMES:
        yield Reading(definitions.NOTIFICATIONS, getattr(counts, outcome), (outcome,))
    yield Reading(definitions.NOTIFICATIONS_WAITING, counts.waiting)
    yield from watch_readings(watching)


class NoticeLinks(NamedTuple):
    """Where the page is (`STREAMPROC_PAGE_URL`), and the template of a trace's address (`STREAMPROC_TRACE_URL`)."""

    page_url: str = ""
    trace_url: str = ""

    def of(self, control: ControlEvent) -> dict[str, str]:
        """Return the fields of a notice that are links; empty ones are not known."""
        trace_id = split_traceparent(control.traceparent).trace_id if control.traceparent else ""
        return {"page_url": self._page(control), "trace_url": trace_address(self.trace_url, trace_id)}

    def _page(self, control: ControlEvent) -> str:
        base = self.page_url.rstrip("/")
        if not base or control.type in ABOUT_NO_RUN:
            return f"{base}/" if base else ""
        return f"{base}{run_path(control.run_id, decision=control.id)}#evidence"


NO_LINKS: Final = NoticeLinks()
Settled = Callable[[], None]


@dataclass(frozen=True, slots=True)
class NotifierCounts:
    """Counts since the start. `held_back` counts control events of a series that had notified already; `lost` and
    `sent` count a notification once per destination."""

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
    """Turns control events into notices and puts them into the queues of their destinations."""

    def __init__(
        self,
        config: NotificationConfig,
        destinations: list[tuple[Destination, Queue]],
        *,
        links: NoticeLinks = NO_LINKS,
    ) -> None:
        self._links = links
        self._config = config
        self._destinations = destinations
        self._dedup = Dedup(config.repeat_after_s)
        self._events = self._notices = 0
        self._in_flight: dict[str, list[Settled]] = {}

    async def run(self) -> None:
        """Serve the queues until cancelled."""
        await asyncio.gather(*(queue.run() for _, queue in self._destinations))

    def add(self, control: ControlEvent, settled: Settled) -> None:
        """Process a control event. `settled` is called once all its notifications are sent or given up."""
        self._events += 1
        waiting = self._in_flight.get(control.id)
        if waiting is not None:  # read again after a broken connection, or published again after a worker crash
            waiting.append(settled)
            return
        notice, queues = self._decide(control)
        if notice is None or not queues:
            settled()
            return
        self._notices += 1
        self._in_flight[control.id] = [settled]
        open_count = len(queues)

        def one_settled() -> None:
            nonlocal open_count
            open_count -= 1
            if not open_count:
                for callback in self._in_flight.pop(control.id):
                    callback()

        for queue in queues:
            queue.put(notice, one_settled)

    def _decide(self, control: ControlEvent) -> tuple[Notice | None, list[Queue]]:
        if control.type == "run.resumed":
            self._dedup.reset(control.run_id)
        trigger = trigger_of(control)
        urgency = self._config.urgency_of(trigger) if trigger is not None else None
        if trigger is None or urgency is None:
            return None, []
        notice = notice_of(control, trigger, urgency).model_copy(update=self._links.of(control))
        minimum = self._config.minimum
        queues = [queue for destination, queue in self._destinations if destination.accepts(notice, minimum)]
        if not queues:
            return None, []
        held_back = self._dedup.admit(control, urgency, time.monotonic())
        if held_back is None:
            return None, []
        return notice.model_copy(update={"repeats": held_back}), queues

    @property
    def waiting(self) -> int:
        """The number of open notifications, over all destinations."""
        return sum(queue.waiting for _, queue in self._destinations)

    @property
    def counts(self) -> NotifierCounts:
        """Return the counts for the log and for metrics."""
        queues = [queue for _, queue in self._destinations]
        return NotifierCounts(
            events=self._events,
            notices=self._notices,
            repeated=self._dedup.same,
            held_back=self._dedup.held_back,
            waiting=self.waiting,
            sent=sum(queue.sent for queue in queues),
            messages=sum(queue.messages for queue in queues),
            failed_tries=sum(queue.failed for queue in queues),
            lost=sum(queue.lost for queue in queues),
        )
