"""Records of the turns topic outside of their home partition: refused, counted, and explained.

A run has one home (`kafka.partitioning`). Its state, its halt and its budgets are kept there and nowhere else, so a
record in another partition must not begin the run there a second time. If such records go on, publishers hash keys
otherwise than this worker expects: it says so, with the setting.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Final

from streamproc.fleet.command_events import ALL, strays_event
from streamproc.kafka.partitioning import Home, find_strays
from streamproc.worker.publishing import OutgoingRecord, control_record
from streamproc.worker.records import Fetched

log = logging.getLogger(__name__)

FEW: Final = 3  # strays of different runs before their cause is named: one or two may be an attempt to evade a halt
SAMPLE: Final = 200  # runs from which the cause is concluded
AGAIN_S: Final = 3_600.0


class Strays:
    """The records that one worker has refused because they are not at home."""

    def __init__(self, home: Home, topic: str) -> None:
        self.home = home
        self.refused = 0
        self._topic = topic
        self._sample: deque[tuple[bytes, int]] = deque(maxlen=SAMPLE)  # of strays, and of runs that began meanwhile
        self._runs: set[bytes] = set()
        self._said_s = -AGAIN_S

    def began(self, key: bytes, partition: int) -> None:
        """Note a run that began at home, while there are strays: publishers may differ."""
        if self._sample:
            self._sample.append((key, partition))

    def refuse(self, record: Fetched, partition: int) -> list[OutgoingRecord]:
        """Note a stray; return the event that names the cause, once an hour at most."""
        key = record.key or b""
        self.refused += 1
        self._sample.append((key, partition))
        if len(self._runs) < FEW:
            self._runs.add(key)
        if len(self._runs) < FEW or time.monotonic() < self._said_s + AGAIN_S:
            return []
        self._said_s = time.monotonic()
        cause = find_strays(self.home, self._sample).cause(self.home)
        log.warning("%d records of %s are not in the home partition of their run and were refused: %s",
                    self.refused, self._topic, cause)  # fmt: skip
        event = strays_event(cause, f"{self._topic}[{partition}]@{record.offset}", record.timestamp or 0)
        return [control_record(ALL.encode(), event)]
