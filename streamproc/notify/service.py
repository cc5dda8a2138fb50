"""One service that messages go to, through Apprise. Its URL is a secret, and appears nowhere."""

from __future__ import annotations

import asyncio
import logging
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import apprise

from streamproc.errors import InvalidSettings
from streamproc.model.notification import Message, Urgency

if TYPE_CHECKING:
    from streamproc.notify.notification_config import Destination

KINDS: Final = {
    Urgency.LOW: apprise.NotifyType.INFO,
    Urgency.MEDIUM: apprise.NotifyType.WARNING,
    Urgency.HIGH: apprise.NotifyType.FAILURE,
    Urgency.CRITICAL: apprise.NotifyType.FAILURE,
}

_heard: ContextVar[list[str] | None] = ContextVar("what Apprise said while it sent", default=None)


class _Listener(logging.Handler):
    """Apprise says only in its log why it could not send, and there it names topics and addresses."""

    def emit(self, record: logging.LogRecord) -> None:
        heard = _heard.get()
        if heard is not None and record.levelno >= logging.WARNING:
            heard.append(record.getMessage())


def _listen() -> None:
    log = logging.getLogger("apprise")
    if not any(isinstance(handler, _Listener) for handler in log.handlers):
        log.addHandler(_Listener())
        log.propagate = False
    log.setLevel(logging.WARNING)


class Service:
    """Sends messages to one Apprise URL."""

    def __init__(self, destination: Destination, number: int) -> None:
        url = destination.url.get_secret_value()
        scheme = urlsplit(url).scheme if "://" in url else ""
        self.name = destination.name or f"{scheme or 'destination'} #{number}"
        """What it is called in logs: for many services even the host is a secret."""
        asset = apprise.AppriseAsset(
            app_id="streamproc", app_desc="circuit breaker", storage_mode=apprise.PersistentStoreMode.MEMORY
        )
        self._apprise = apprise.Apprise(asset=asset)
        _listen()
        if not self._apprise.add(url):
            what = f"{scheme}:// with what follows is no address" if scheme else "it is no URL"
            raise InvalidSettings(
                f"destination {self.name}: {what} that Apprise can use; "
                "https://github.com/caronc/apprise says how each service is written"
            )

    async def send(self, message: Message) -> str:
        """Send, in a thread; empty: it was taken, else why not. One message at a time."""
        return await asyncio.to_thread(self._send, message)

    def _send(self, message: Message) -> str:
        heard: list[str] = []
        _heard.set(heard)
        try:
            sent = self._apprise.notify(
                title=message.title,
                body=message.body,
                notify_type=KINDS[message.urgency],
                body_format=apprise.NotifyFormat.TEXT,
            )
        except Exception as error:  # noqa: BLE001  # a hundred plugins: whatever one of them raises, it was not sent
            return type(error).__name__
        return "" if sent else _reason(heard)


def _reason(heard: list[str]) -> str:
    """What Apprise said, without addresses: the status, or that there was no connection."""
    text = " ".join(heard)
    if status := re.search(r"error=(\d+)", text):
        return f"status {status[1]}"
    return "no connection, or no answer in time" if "onnection" in text else "refused"
