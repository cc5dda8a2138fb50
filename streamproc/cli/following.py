"""``streamproc scan --watch``: follow logs, and report what gets stuck."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from streamproc.cli.inputs import report_reading
from streamproc.cli.terminal import note
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.cli.finding_output import FindingOutput
    from streamproc.core.decision import Decision
    from streamproc.notify import NotificationConfig
    from streamproc.notify.notifier import Notifier
    from streamproc.replay.following import Followed
    from streamproc.replay.scan import Scan
    from streamproc.replay.source import LogEvent
    from streamproc.settings import Settings

DRAIN_S: Final = 5.0  # for queued notifications at the end

Events = Iterator[tuple[int, list["LogEvent"]]]


def follow(
    followed: Followed, scan: Scan, printing: FindingOutput, notifications: NotificationConfig | None, *, quiet: bool
) -> bool:
    """Follow logs until Ctrl-C or SIGTERM. Return whether a run was halted."""
    printing.begin(scan)
    alarm = Alarm(notifications)
    previous = [(one, signal.signal(one, lambda *_: followed.end())) for one in (signal.SIGINT, signal.SIGTERM)]
    try:
        _print_all(followed.events(), followed, scan, printing, alarm, quiet=quiet)
        for one, handler in previous:
            signal.signal(one, handler)
        _print_all(followed.rest(), followed, scan, printing, None, quiet=quiet)
    finally:
        alarm.close()
    if not quiet:
        report_reading(followed.sources, followed.reading(), followed.unknown_fields)
    return printing.end()


def _print_all(
    events: Events, followed: Followed, scan: Scan, printing: FindingOutput, alarm: Alarm | None, *, quiet: bool
) -> None:
    ready = False
    for source, batch in events:
        scan.sources = followed.sources
        for decision in scan.step(source, batch):
            printing.add(decision)
            if alarm is not None and followed.caught_up:
                alarm.raise_for(decision)
        while followed.problems:
            note(followed.problems.popitem()[0])
        if followed.caught_up and not ready:
            ready = True
            if not quiet and alarm is not None:
                note(f"following {plural(len(followed.sources), 'log')}, {plural(scan.turns, 'turn')} so far; "
                     "Ctrl-C ends with a summary")  # fmt: skip


class Alarm:
    """Rings the terminal's bell and sends notifications, from a thread, for what happens while logs are followed."""

    def __init__(self, config: NotificationConfig | None) -> None:
        self._bell = next((stream for stream in (sys.stderr, sys.__stdout__) if stream and stream.isatty()), None)
        self._notifier: Notifier | None = None
        if config is None:
            return
        from streamproc.client.background import Background
        from streamproc.notify.addresses import queues_of
        from streamproc.notify.notifier import Notifier

        self._notifier = notifier = Notifier(config, queues_of(config))
        self._background = Background("streamproc notifications")
        self._running = self._background.call(_begun(notifier))

    def raise_for(self, decision: Decision) -> None:
        """Ring for a halt; notify as the triggers say."""
        if decision.severity == "halt" and self._bell is not None:
            self._bell.write("\a")
            self._bell.flush()
        if (notifier := self._notifier) is not None:
            self._background.call_soon(lambda: notifier.add(decision, lambda: None))

    def close(self) -> None:
        """Send what is queued, within a few seconds."""
        if self._notifier is None:
            return
        end = time.monotonic() + DRAIN_S
        time.sleep(0.05)  # what was handed over last is in a queue then
        while self._notifier.waiting and time.monotonic() < end:
            time.sleep(0.05)
        if waiting := self._notifier.waiting:
            note(f"{plural(waiting, 'notification')} could not be sent")
        self._background.call_soon(self._running.cancel)
        self._background.stop()


async def _begun(notifier: Notifier) -> asyncio.Task[None]:
    return asyncio.create_task(notifier.run())


def notification_config(settings: Settings, urls: Sequence[str]) -> NotificationConfig | None:
    """Return where to notify: the given URLs, else the settings; None for nowhere. Raises `InvalidSettings`."""
    from streamproc.notify import load_notification_config

    chosen = list(urls) or settings.notify.get_secret_value().split()
    if not chosen and not settings.notify_file:
        return None
    return load_notification_config(settings.notify_file, chosen)
