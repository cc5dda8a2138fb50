"""The same work in plain Faust: an agent, a table write per event, a send for each decision.

In its favour: states stay in memory beside the table, kept as the worker keeps them; buffers, producer and garbage
collector are tuned; the event loop is uvloop. Runs in a separate process for a given number of events; prints one line
of JSON.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Final

import faust

from benchmarks.peer_count import Count
from benchmarks.runs import Runs
from benchmarks.timing import worker_gc_settings
from streamproc.core.decision import encode_decision
from streamproc.fingerprint import read_event
from streamproc.settings import Settings, load_settings

FLUSH_TIMEOUT_S: Final = 60


def app_of(settings: Settings) -> faust.App:
    """Return a Faust app with the settings that its users tune."""
    return faust.App(
        settings.worker_group,
        broker=f"kafka://{settings.brokers}",
        key_serializer="raw",
        value_serializer="raw",
        topic_partitions=settings.partitions,
        topic_disable_leader=True,
        table_standby_replicas=0,
        stream_buffer_maxsize=131_072,
        producer_linger=0.02,
        producer_max_batch_size=262_144,
        broker_session_timeout=10.0,
        broker_heartbeat_interval=3.0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=4 << 20,
        worker_redirect_stdouts=False,
        web_enabled=False,
        datadir=settings.datadir,
    )


def build(settings: Settings, warm_up: int, total: int) -> faust.App:
    """Return the app with its agent."""
    app = app_of(settings)
    turns = app.topic(settings.topic("turns"), key_type=bytes, value_type=bytes)
    control = app.topic(f"{settings.worker_group}-control", key_type=bytes, value_type=bytes)
    table = app.Table("runs", partitions=settings.partitions, key_type=bytes, value_type=bytes)
    runs, count = Runs(), Count(warm_up, total)
    reached: dict[int, int] = {}

    @app.agent(turns)
    async def step(stream: Any) -> None:
        async for event in stream.events():
            key, message = event.key, event.message
            at_ms = round(message.timestamp * 1000)
            for decision in runs.step(key, read_event(event.value), at_ms, message.offset, message.partition):
                await control.send(key=key, value=encode_decision(decision))
            table[key] = runs.packed(key)
            reached[message.partition] = message.offset + 1
            count.one()
            if count.done == total:
                await asyncio.wait_for(app.producer.flush(), FLUSH_TIMEOUT_S)
                count.report(reached={str(number): end for number, end in reached.items()})
                os._exit(0)

    return app


def main() -> None:
    """``python -m benchmarks.stock_agent WARM_UP TOTAL``; settings come from the environment."""
    warm_up, total = map(int, sys.argv[1:])
    app = build(load_settings(), warm_up, total)
    sys.argv = ["stock_agent", "--loop", "uvloop", "worker", "-l", "error", "--without-web"]
    with worker_gc_settings():
        app.main()


if __name__ == "__main__":
    main()
