"""Notifications from `streamproc up`: the notifier of `streamproc notify`, on this log in place of the control topic.

Delivery is at least once: a file has the position before which everything is sent or given up, and a process that
starts goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamproc.kafka.group import OffsetTracker
from streamproc.live.store import CONTROL, RECORDS_MAX, LiveLog
from streamproc.model.controls import read_control
from streamproc.notify.addresses import queues_of
from streamproc.notify.notification_config import NotificationConfig
from streamproc.notify.notifier import NoticeLinks, Notifier

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_S: Final = 5.0  # after a fault of the log
DRAIN_TIMEOUT_S: Final = 10.0  # for queued notifications at a stop; the rest is sent after the next start

log = logging.getLogger(__name__)


class LogNotifier:
    """Sends notifications for the decisions of a log while `run` is active; `wake` says that there may be new ones.
    Those that are made while `pauses` get none."""

    def __init__(
        self, stored: LiveLog, config: NotificationConfig, links: NoticeLinks, mark: Path, pauses: Callable[[], bool]
    ) -> None:
        self.notifier = Notifier(config, queues_of(config), links=links)
        self._stored, self._mark, self._pauses = stored, mark, pauses
        self._tracker: OffsetTracker[str] = OffsetTracker()
        self._position = _marked(mark, stored.position)
        self._write(self._position)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look for new decisions now."""
        self._woken.set()

    async def run(self) -> None:
        """Send until cancelled; then what waits, within a short time."""
        self.wake()
        serving = asyncio.create_task(self.notifier.run())
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                try:
                    self._read()
                except sqlite3.Error as error:
                    log.error("notifications wait: the log cannot be read (%s)", error)
                    asyncio.get_running_loop().call_later(RETRY_S, self.wake)
                self._save()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    while self.notifier.waiting and not serving.done():
                        await asyncio.sleep(0.05)
            serving.cancel()
            self._save()
            log.info("stopped notifications %s", self.notifier.counts)

    def _read(self) -> None:
        records = self._stored.records_after(self._position, CONTROL)
        if len(records) == RECORDS_MAX:
            self.wake()
        for record in records:
            settled = self._tracker.begin(CONTROL, record.position, 1)
            self._position = record.position
            if self._pauses():
                settled()
            else:
                self.notifier.add(read_control(record.value), lambda settled=settled: self._settle(settled))  # type: ignore[misc]

    def _settle(self, settled: Callable[[], None]) -> None:
        settled()
        self.wake()

    def _save(self) -> None:
        ready = self._tracker.ready()
        if ready:
            self._write(ready[CONTROL] - 1)
            self._tracker.committed(ready)

    def _write(self, position: int) -> None:
        beside = self._mark.with_name(f"{self._mark.name}.new")
        try:
            beside.write_text(f"{position}\n")
            beside.replace(self._mark)
        except OSError as error:
            log.warning("%s cannot be written (%s): notifications may be sent again", self._mark, error.strerror)


def _marked(mark: Path, newest: int) -> int:
    """Return the position up to which everything is sent: all of it if that was never noted, nothing of a new log."""
    try:
        position = int(mark.read_text())
    except (OSError, ValueError):
        return newest
    return position if position <= newest else 0
