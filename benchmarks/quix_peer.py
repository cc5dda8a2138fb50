"""The same work in Quix Streams: a stateful function, state in its RocksDB store with a changelog topic, a message for
each decision.

In its favour: states stay in memory beside the store, kept as the worker keeps them, and it has the worker's garbage
collector settings. Runs in a separate environment (`benchmarks/peers.in`) for a given number of events; prints one line
of JSON.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from quixstreams import Application

from benchmarks.peer_count import Count
from benchmarks.runs import Runs
from benchmarks.timing import worker_gc_settings
from streamproc.core.decision import encode_decision
from streamproc.fingerprint import read_event
from streamproc.settings import load_settings

SILENCE_MAX_S: Final = 30


def main() -> None:
    """``python -m benchmarks.quix_peer RECORDS``; settings come from the environment."""
    total = int(sys.argv[1])
    settings, runs, count = load_settings(), Runs(), Count(total // 10, total)
    app = Application(
        broker_address=settings.brokers,
        consumer_group=settings.worker_group,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=settings.datadir,
        loglevel="ERROR",
    )
    turns = app.topic(settings.topic("turns"), key_deserializer="bytes", value_deserializer="bytes")
    control = app.topic(f"{settings.worker_group}-control", key_serializer="bytes", value_serializer="bytes")

    def step(value: bytes, key: bytes, timestamp: int, _headers: Any, store: Any) -> list[bytes]:
        decisions = [encode_decision(decision) for decision in runs.step(key, read_event(value), timestamp)]
        store.set_bytes("run", runs.packed(key))
        count.one()
        if count.done == total:
            app.stop()
        return decisions

    app.dataframe(turns).apply(step, stateful=True, metadata=True, expand=True).to_topic(control)
    with worker_gc_settings():
        app.run(timeout=SILENCE_MAX_S)
    count.report()


if __name__ == "__main__":
    main()
