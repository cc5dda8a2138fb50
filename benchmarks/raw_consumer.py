"""The limit and the plain loop: a separate process in which an aiokafka consumer reads the turns topic once.

``decode`` only runs `getmany` and `orjson.loads`: no Python worker can be faster. ``loop`` adds the core, with states
in a dict, kept as the worker keeps them: it stores no state and publishes no decision. Prints one
line of JSON: records, seconds and processor seconds, without the first batch.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
import uvloop

from benchmarks.kafka_log import consumer
from benchmarks.timing import worker_gc_settings
from streamproc.core.states import Held
from streamproc.fingerprint import read_event
from streamproc.policy import load_policy
from streamproc.settings import load_settings

Work = Callable[[Sequence[Any]], int]
PATIENCE_S: Final = 30


def decoding() -> Work:
    """Return a function that decodes each value and makes no decision."""

    def work(records: Sequence[Any]) -> int:
        for record in records:
            orjson.loads(record.value)
        return 0

    return work


def looping() -> Work:
    """Return a function that steps each event and counts the decisions."""
    engine = load_policy().engine()
    begin, step = engine.states.begin, engine.step
    runs: dict[bytes, Held] = {}

    def work(records: Sequence[Any]) -> int:
        decisions = 0
        for record in records:
            held = runs.get(record.key) or begin(record.partition)
            outcome = step(held, read_event(record.value), record.timestamp)
            decisions += len(outcome.decisions)
            runs[record.key] = outcome.kept
        return decisions

    return work


async def read(work: Work, total: int) -> dict[str, float]:
    """Read the whole topic through `work`."""
    settings = load_settings()
    done = decisions = 0
    async with consumer(settings, settings.topic("turns")) as reader:
        began = cpu = 0.0
        first = 0
        last_read = time.monotonic()
        while done < total and time.monotonic() - last_read < PATIENCE_S:
            for records in (await reader.getmany(timeout_ms=1_000)).values():
                if not began:  # the first batch was fetched before the clock started: leave it out
                    began, cpu, first = time.perf_counter(), time.process_time(), len(records)
                decisions += work(records)
                done += len(records)
                last_read = time.monotonic()
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {"records": done, "measured": done - first, "seconds": seconds, "cpu_s": cpu_s, "decisions": decisions}


def main() -> None:
    """``python -m benchmarks.raw_consumer decode|loop RECORDS``."""
    kind, total = sys.argv[1:]
    work = decoding() if kind == "decode" else looping()
    with worker_gc_settings():
        found = uvloop.run(read(work, int(total)))
    os.write(1, orjson.dumps(found) + b"\n")


if __name__ == "__main__":
    main()
