"""The same work as people write it with Bytewax: a keyed stateful step, its state in their recovery store (snapshots
into SQLite), a message for each decision.

One worker thread, batches of a thousand records, the interval of snapshots that Bytewax has by default, the collector
of a worker. Runs in an environment of its own (`benchmarks/peers.in`) to the end of the topic; prints one line of JSON.
"""

from __future__ import annotations

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
from benchmarks.timing import collector_of_a_worker
from streamproc.core.decision import encode_decision
from streamproc.core.run_state import RunState, dump, load
from streamproc.fingerprint import read_event
from streamproc.policy import load_policy
from streamproc.settings import load_settings

BATCH_RECORDS: Final = 1_000
SNAPSHOTS_EVERY: Final = timedelta(seconds=10)


class Kept:
    """A run's state, kept as its bytes where it is snapshotted."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return _kept, (dump(self.state),)

    def __deepcopy__(self, _memo: Any) -> Kept:
        return _kept(dump(self.state))


def _kept(raw: bytes) -> Kept:
    return Kept(load(raw))


def main() -> None:
    """``python -m benchmarks.bytewax_peer RECORDS``, with the settings of the environment."""
    total = int(sys.argv[1])
    settings, engine, count = load_settings(), load_policy().engine(), Count(total // 10, total)

    def step(kept: Kept | None, message: Any) -> tuple[Kept, list[bytes]]:
        kept = kept or Kept(RunState())
        at_ms = message.timestamp[1] if isinstance(message.timestamp, tuple) else message.timestamp
        decisions = [encode_decision(it) for it in engine.step(kept.state, read_event(message.value), at_ms)]
        count.one()
        return kept, decisions

    flow = Dataflow("peer")
    source = KafkaSource([settings.brokers], [settings.topic("turns")], tail=False, batch_size=BATCH_RECORDS)
    turns = op.key_on("run", op.input("turns", flow, source), lambda message: message.key.decode())
    decided = op.stateful_flat_map("step", turns, step)
    told = op.map("message", decided, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))
    op.output("control", told, KafkaSink([settings.brokers], f"{settings.worker_group}-control"))
    place = Path(settings.datadir) / "bytewax"
    place.mkdir(parents=True)
    init_db_dir(place, 1)
    with collector_of_a_worker():
        cluster_main(flow, [], 0, epoch_interval=SNAPSHOTS_EVERY, recovery_config=RecoveryConfig(str(place)))
    count.tell()


if __name__ == "__main__":
    main()
