"""The log of aiokafka's retries: thousands of lines while a broker is away, which say no more than the first.

Our clients say themselves that a connection is lost, once a minute that it still is, and that it is back
(`session.Outage`). Meanwhile, what aiokafka logs about their attempts is left out; if no `Outage` says why, one line a
minute is shown. Each of their other warnings is shown once a minute.

Other users of aiokafka in the process are not affected: a context variable marks our clients, and aiokafka's tasks
inherit it from the task that starts a client. In a process of ours, every client is ours.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

EVERY_S: Final = 60.0
GRACE_S: Final = 10.0  # a broker that restarts is back by then, and an `Outage` has noticed one that is gone
TEMPLATES_MAX: Final = 1_000  # whose last time is known; aiokafka has some dozens
NEVER_S: Final = float("-inf")

RETRIES: Final = (
    "Attempt to fetch offsets",
    "Cannot send %r to",
    "Could not send %r",
    "Error sending %s to node",
    "Failed fetch messages from",
    "Failed fetch offsets from",
    "FindCoordinator Request failed",
    "Got error produce response",
    "Group Coordinator Request failed",
    "Heartbeat failed for group %s: coordinator",
    "Heartbeat send request failed",
    "Heartbeat session expired",
    "LeaveGroup request failed",
    "Marking the coordinator dead",
    "Unable connect to",
    "Unable to request metadata from",
    "Unable to update metadata from",
)

_ours: ContextVar[bool] = ContextVar("whether what runs belongs to a Kafka client of streamproc", default=False)


class RetryFilter(logging.Filter):
    """Passes what other clients log, and little of what ours do."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self.every_client = False
        """Whether all clients of this process are ours."""
        self._passed: dict[str, float] = {}
        self.reported_s = NEVER_S
        """When an `Outage` last noticed that a connection is lost."""
        self._since_s = self._seen_s = NEVER_S  # the present series of retries

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record of aiokafka."""
        if record.levelno < logging.WARNING or not (self.every_client or _ours.get()):
            return True
        if logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True  # someone looks for a fault
        now_s, template = self.clock(), str(record.msg)[:80]
        if template.startswith(RETRIES):
            if now_s - self._seen_s > GRACE_S:
                self._since_s = now_s
            self._seen_s = now_s
            if now_s - self._since_s < GRACE_S or now_s - self.reported_s < EVERY_S:
                return False
            template = RETRIES[0]
        if now_s - self._passed.get(template, NEVER_S) < EVERY_S:
            return False
        if len(self._passed) >= TEMPLATES_MAX:
            self._passed.clear()
        self._passed[template] = now_s
        return True


_filter = RetryFilter()


def quiet_retries(*, every_client: bool = False) -> None:
    """Filter the log of aiokafka: of clients that run inside `ours`, or of `every_client` of this process."""
    _filter.every_client = _filter.every_client or every_client
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "aiokafka"]:
        logging.getLogger(name).addFilter(_filter)


def note_outage() -> None:
    """Leave out retries for now: the loss of the connection is reported."""
    _filter.reported_s = time.monotonic()


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Mark the Kafka clients that this task starts, and the tasks that it starts, as ours."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)
