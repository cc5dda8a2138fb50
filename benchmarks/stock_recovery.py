"""Stock Faust recovers a table from its changelog: the app of `stock_agent` with an idle agent.

Runs in a separate process until the table is recovered; prints one line of JSON. Its clock starts after the first
batch, which does not count.
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
from benchmarks.timing import worker_gc_settings
from streamproc.settings import Settings, load_settings


def build(settings: Settings) -> faust.App:
    """Return an app that exits when its table is recovered."""
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
        found = {"runs": len(table), "timed": sum(count for _, count in batches[1:]), "seconds": seconds}
        os.write(1, b"\n" + orjson.dumps(found) + b"\n")  # begin a new line: Faust prints its progress
        os._exit(0)

    return app


def main() -> None:
    """``python -m benchmarks.stock_recovery``, settings from the environment."""
    app = build(load_settings())
    sys.argv = ["stock_recovery", "--loop", "uvloop", "worker", "-l", "error", "--without-web"]
    with worker_gc_settings():
        app.main()


if __name__ == "__main__":
    main()
