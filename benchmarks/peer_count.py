"""The counter in a peer's process; it prints one line of JSON for `benchmarks.peers`."""

from __future__ import annotations

import os
import time
from typing import Any

import orjson


class Count:
    """Counts events, and measures time and processor time after a warm-up."""

    def __init__(self, warm_up: int, total: int) -> None:
        self.done = 0
        self._warm_up, self._total = warm_up, total
        self._began = self._cpu = 0.0
        self._seconds = self._cpu_s = 0.0

    def one(self) -> None:
        """Count an event."""
        self.done += 1
        if self.done == self._warm_up:
            self._began, self._cpu = time.perf_counter(), time.process_time()
        if self.done == self._total:
            self._seconds, self._cpu_s = time.perf_counter() - self._began, time.process_time() - self._cpu

    def report(self, **more: Any) -> None:
        """Print the counts, and what else is known."""
        counts = {
            "records": self.done,
            "measured": self._total - self._warm_up,
            "seconds": self._seconds,
            "cpu_s": self._cpu_s,
            **more,
        }
        os.write(1, orjson.dumps(counts) + b"\n")
