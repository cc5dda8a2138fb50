"""Notifications: inform people about control events, through Apprise."""

from __future__ import annotations

from streamproc.notify.notification_config import NotificationConfig, load_notification_config

__all__ = ["NotificationConfig", "load_notification_config"]
