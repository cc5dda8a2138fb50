"""What the worker writes to standard error: one plain line for each thing that somebody may want to know.

Never a secret, and no content of turns: addresses, names, numbers, and the codes of decisions.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Final

OTHERS: Final = ("aiokafka", "asyncio", "faust", "mode")
NUMBER: Final = "STREAMPROC_WORKER_NUMBER"  # set by a supervisor: which of its workers this process is
CALM_S: Final = 30.0  # a client whose broker is away says so many times a second; once in so long is enough

# Known, harmless, and alarming to read.
NOISE: Final = (
    'Unable connect to "%s:%s": %s',  # of the preflight, which says so itself
    "Timer %s woke up",  # a step was in hand, or the machine was suspended
    "Timer %s is overlapping",
    "Heartbeat failed for group %s because it is rebalancing",
    "Topic %s is not available during auto-create initialization",
    "Missing sensor state for rebalance",
    "rebalance again generation id",
    "Recovery rebalancing again",
)


class Calm(logging.Filter):
    """Lets the same line of another library through once in `CALM_S`."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this is worth telling."""
        template = str(record.msg)
        service = template.startswith("[^")  # one of mode's, ours among them
        if service and record.levelno < logging.WARNING:
            return False  # starting, stopping
        if not service and not record.name.startswith(OTHERS):
            return True
        if any(noise in template for noise in NOISE):
            return False
        key, now = f"{record.name} {template[:80]}", time.monotonic()
        if now - self._told.get(key, -CALM_S) < CALM_S:
            return False
        self._told[key] = now
        return True


def set_up(level: str = "info") -> None:
    """Lines to standard error; other libraries speak only of trouble."""
    handler = logging.StreamHandler(sys.stderr)
    who = f"worker {os.environ[NUMBER]} " if os.environ.get(NUMBER) else ""
    handler.setFormatter(logging.Formatter(f"%(asctime)s {who}%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(Calm())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in OTHERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
