"""The same work in Bytewax: a keyed stateful step, state in its recovery store (SQLite snapshots), a message for
each decision.

Its state of a run is what the worker keeps: the stored bytes, or with a core in pure Python an object that becomes
them in a snapshot. One worker thread, batches of 1 000 records, Bytewax's default snapshot interval, the worker's
garbage collector settings. Runs in a separate environment (`benchmarks/peers.in`) to the end of the topic; prints one
line of JSON.
"""

from __future__ import annotations

import copyreg
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from benchmarks.peer_count import Count
from benchmarks.timing import worker_gc_settings
from streamproc.core.decision import encode_decision
from streamproc.core.run_state import RunState, dump, load
from streamproc.core.states import Held
from streamproc.fingerprint import read_event
from streamproc.policy import load_policy
from streamproc.settings import load_settings

BATCH_RECORDS: Final = 1_000
SNAPSHOTS_EVERY: Final = timedelta(seconds=10)


def _restored(raw: bytes) -> RunState:
    return load(raw)


def main() -> None:
    """``python -m benchmarks.bytewax_peer RECORDS``; settings come from the environment."""
    total = int(sys.argv[1])
    settings, engine, count = load_settings(), load_policy().engine(), Count(total // 10, total)
    copyreg.pickle(RunState, lambda run: (_restored, (dump(run),)))  # copies and snapshots of objects

    def step(held: Held | None, message: Any) -> tuple[Held, list[bytes]]:
        at_ms = message.timestamp[1] if isinstance(message.timestamp, tuple) else message.timestamp
        state = engine.states.begin(message.partition) if held is None else held
        outcome = engine.step(state, read_event(message.value), at_ms)
        count.one()
        return outcome.kept, [encode_decision(decision) for decision in outcome.decisions]

    flow = Dataflow("peer")
    source = KafkaSource([settings.brokers], [settings.topic("turns")], tail=False, batch_size=BATCH_RECORDS)
    turns = op.key_on("run", op.input("turns", flow, source), lambda message: message.key.decode())
    decided = op.stateful_flat_map("step", turns, step)
    messages = op.map("message", decided, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))
    op.output("control", messages, KafkaSink([settings.brokers], f"{settings.worker_group}-control"))
    folder = Path(settings.datadir) / "bytewax"
    folder.mkdir(parents=True)
    init_db_dir(folder, 1)
    with worker_gc_settings():
        cluster_main(flow, [], 0, epoch_interval=SNAPSHOTS_EVERY, recovery_config=RecoveryConfig(str(folder)))
    count.report()


if __name__ == "__main__":
    main()
