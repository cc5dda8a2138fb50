"""The log of a worker on standard error: one line an event, with other libraries kept quiet.

It never contains secrets or the content of turns: only addresses, names, numbers, and the codes of decisions. Names
come from agents: unprintable characters in them, line breaks included, are escaped.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Final

from streamproc.kafka.retry_log import quiet_retries
from streamproc.model.log_lines import LogStyle, log_to_stderr

OTHERS: Final = ("aiokafka", "asyncio", "faust", "mode")
NUMBER: Final = "STREAMPROC_WORKER_NUMBER"  # set by a supervisor: the number of this worker
CALM_S: Final = 30.0  # a client without its broker logs the same line many times a second; once in this time is enough
LINES_MAX: Final = 1_000  # lines whose last time is known; libraries have some dozens, unless they name topics in them

# Known and harmless, though they read alarming.
NOISE: Final = (
    'Unable connect to "%s:%s": %s',  # readiness logs this itself
    "Timer %s woke up",  # a step was running, or the machine was suspended
    "Timer %s is overlapping",
    "Heartbeat failed for group %s because it is rebalancing",
    "Topic %s is not available during auto-create initialization",
    "Missing sensor state for rebalance",
    "rebalance again generation id",
    "Recovery rebalancing again",
)


class Calm(logging.Filter):
    """Passes the same line of another library once in `CALM_S`."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log this."""
        template = str(record.msg)
        service = template.startswith("[^")  # one of mode's, ours among them
        if service and record.levelno < logging.WARNING:
            return False  # starting, stopping
        if not service and not record.name.startswith(OTHERS):
            return True
        if any(noise in template for noise in NOISE):
            return False
        key, now = f"{record.name} {template[:80]}", time.monotonic()
        if now - self._passed.get(key, -CALM_S) < CALM_S:
            return False
        if len(self._passed) >= LINES_MAX:
            self._passed.clear()
        self._passed[key] = now
        return True


def set_up(level: str = "info", style: LogStyle = "text") -> None:
    """Log to standard error; from other libraries only warnings and errors."""
    log_to_stderr(level, style, os.environ.get(NUMBER, "")).addFilter(Calm())
    quiet_retries(every_client=True)
    for name in OTHERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
