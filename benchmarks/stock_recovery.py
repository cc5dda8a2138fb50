"""Stock Faust, recovering a table from its changelog: the agent of `stock_agent`, without anything to do.

Runs as a process of its own until the table is there; prints one line of JSON. Its clock starts when its first batch is
complete, which is left out of what it is said to have done.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import faust
import orjson

from benchmarks.stock_agent import app_of
from benchmarks.timing import collector_of_a_worker
from streamproc.settings import Settings, load_settings


def build(settings: Settings) -> faust.App:
    """The app, which ends itself when its table is recovered."""
    app = app_of(settings)
    turns = app.topic(settings.topic("turns"), key_type=bytes, value_type=bytes)
    table = app.Table("runs", partitions=settings.partitions, key_type=bytes, value_type=bytes)
    apply_batch = table.apply_changelog_batch
    batches: list[tuple[float, int]] = []

    def apply(batch: Iterable[Any]) -> None:
        records = list(batch)
        apply_batch(records)
        batches.append((time.perf_counter(), len(records)))

    table.apply_changelog_batch = apply  # type: ignore[method-assign]

    @app.agent(turns)
    async def idle(stream: Any) -> None:
        async for _ in stream.events():
            pass

    @table.on_recover
    async def done() -> None:
        seconds = batches[-1][0] - batches[0][0]
        told = {"runs": len(table), "timed": sum(count for _, count in batches[1:]), "seconds": seconds}
        os.write(1, b"\n" + orjson.dumps(told) + b"\n")  # Faust's progress stands on a line of its own
        os._exit(0)

    return app


def main() -> None:
    """``python -m benchmarks.stock_recovery``, with the settings of the environment."""
    app = build(load_settings())
    sys.argv = ["stock_recovery", "--loop", "uvloop", "worker", "-l", "error", "--without-web"]
    with collector_of_a_worker():
        app.main()


if __name__ == "__main__":
    main()
