"""Notifications: inform people about control events, through Apprise."""

from __future__ import annotations

from streamproc.notify.notification_config import NotificationConfig, load_notification_config
from streamproc.notify.triggers import TRIGGERS, NotificationTrigger, notice_of, trigger_of

__all__ = [
    "TRIGGERS",
    "NotificationConfig",
    "NotificationTrigger",
    "load_notification_config",
    "notice_of",
    "trigger_of",
]
