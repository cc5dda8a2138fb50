"""A notification service, reached through Apprise. Its URL is a secret and never appears in output or logs."""

from __future__ import annotations

import asyncio
import logging
import re
from contextvars import ContextVar
from typing import Final
from urllib.parse import urlsplit

import apprise

from streamproc.errors import InvalidSettings
from streamproc.model.notification import Message, Urgency
from streamproc.notify.notification_config import Destination

KINDS: Final = {
    Urgency.LOW: apprise.NotifyType.INFO,
    Urgency.MEDIUM: apprise.NotifyType.WARNING,
    Urgency.HIGH: apprise.NotifyType.FAILURE,
    Urgency.CRITICAL: apprise.NotifyType.FAILURE,
}

_warnings: ContextVar[list[str] | None] = ContextVar("warnings that Apprise logged during a send", default=None)


class _WarningCollector(logging.Handler):
    """Collects Apprise's log, the only place with the reason of a failure. It also contains topics and addresses."""

    def emit(self, record: logging.LogRecord) -> None:
        collected = _warnings.get()
        if collected is not None and record.levelno >= logging.WARNING:
            collected.append(record.getMessage())


def _collect_warnings() -> None:
    log = logging.getLogger("apprise")
    if not any(isinstance(handler, _WarningCollector) for handler in log.handlers):
        log.addHandler(_WarningCollector())
        log.propagate = False
    log.setLevel(logging.WARNING)


class Service:
    """Sends messages to one Apprise URL."""

    def __init__(self, destination: Destination, number: int) -> None:
        url = destination.url.get_secret_value()
        scheme = urlsplit(url).scheme if "://" in url else ""
        self.name = destination.name or f"{scheme or 'destination'} #{number}"
        """The name in logs. For many services even the host is a secret."""
        asset = apprise.AppriseAsset(
            app_id="streamproc", app_desc="circuit breaker", storage_mode=apprise.PersistentStoreMode.MEMORY
        )
        self._apprise = apprise.Apprise(asset=asset)
        _collect_warnings()
        if not self._apprise.add(url):
            what = f"not a valid {scheme}:// URL of Apprise" if scheme else "not a URL"
            raise InvalidSettings(
                f"destination {self.name}: {what}; https://github.com/caronc/apprise lists the URL of each service"
            )

    async def send(self, message: Message) -> str:
        """Send one message at a time, in a thread. Return "" if it was accepted, else the reason."""
        return await asyncio.to_thread(self._send, message)

    def _send(self, message: Message) -> str:
        warnings: list[str] = []
        _warnings.set(warnings)
        try:
            sent = self._apprise.notify(
                title=message.title,
                body=message.body,
                notify_type=KINDS[message.urgency],
                body_format=apprise.NotifyFormat.TEXT,
            )
        except Exception as error:  # noqa: BLE001  # any of a hundred plugins; the message was not sent
            return type(error).__name__
        return "" if sent else _reason(warnings)


def _reason(warnings: list[str]) -> str:
    """Return the reason of a failure without addresses: the status, or the lack of a connection."""
    text = " ".join(warnings)
    if status := re.search(r"error=(\d+)", text):
        return f"status {status[1]}"
    return "no connection, or no answer in time" if "onnection" in text else "refused"
