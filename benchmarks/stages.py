"""Where the worker spends the time of a turn: each stage measured separately, on the same log.

The stages run the worker's code in this process, on records of the log, in slices of the same size as the worker's. The
rest of the worker's processor time goes to the Kafka client (fetching, parsing batches, acknowledgements), Faust's
part of the event loop, and the garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from aiokafka.producer.message_accumulator import BatchBuilder

from benchmarks.fleet_log import FleetLog
from benchmarks.runs import Runs
from benchmarks.table import BenchmarkDefect, Row
from benchmarks.timing import collector_time, piece_us, worker_gc_settings
from streamproc.fingerprint import read_event
from streamproc.policy import load_policy

RECORDS_MAX: Final = 40_000
ROUNDS: Final = 3


class Fetched(NamedTuple):
    """The fields of aiokafka's record that the worker reads."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


class Stages(NamedTuple):
    """Microseconds per record of each stage."""

    decode: float
    step: float
    carry: float
    encode: float
    batch: float


def rows(log: FleetLog, worker_cpu_us: float, states_written: int) -> Iterator[Row]:
    """Yield the share of each stage. `worker_cpu_us` is the worker's processor time per event."""
    slices = _slices(log)
    turns_per_state = log.records / states_written
    rounds = [_measure(slices, turns_per_state) for _ in range(ROUNDS)]
    stages = Stages(*(min(values) for values in zip(*rounds, strict=True)))
    names = {
        "decode": "decoding the record", "step": "the core's step", "carry": "bookkeeping, outgoing records",
        "encode": "encoding states", "batch": "building Kafka batches",
    }  # fmt: skip
    for name, what in names.items():
        us = getattr(stages, name)
        yield Row(
            f"stage.{name}",
            f"of an event in the worker: {what}",
            us,
            "µs",
            note=f"{us / worker_cpu_us:.0%}",
            detail=True,
        )
    rest = worker_cpu_us - sum(stages)
    what = "of an event in the worker: the rest (Kafka client, Faust, loop)"
    yield Row("stage.rest", what, rest, "µs", note=f"{rest / worker_cpu_us:.0%}", detail=True)


def _slices(log: FleetLog) -> list[list[Fetched]]:
    """Return the first records of each partition in slices of the worker's size, partitions alternating."""
    from streamproc.worker.limits import SLICE_RECORDS_MAX

    share = RECORDS_MAX // len(log.partitions)
    by_partition = []
    for partition, records in enumerate(log.partitions):
        fetched = [
            Fetched("turns", partition, offset, record.at_ms, record.key, record.value)
            for offset, record in enumerate(records[:share])
        ]
        by_partition.append(
            [fetched[start : start + SLICE_RECORDS_MAX] for start in range(0, len(fetched), SLICE_RECORDS_MAX)]
        )
    return [one for turn in zip_longest(*by_partition) for one in turn if one]


def _measure(slices: list[list[Fetched]], turns_per_state: float) -> Stages:
    count = sum(map(len, slices))
    with collector_time(), worker_gc_settings():
        decode = piece_us(_decode, slices, count)
        decode_and_step = piece_us(_Stepping(), slices, count)
        whole = _WorkerStages()
        accept = piece_us(whole.accept, slices, count)
        encoded = piece_us(whole.encode, slices, len(whole.changed()))
        batched = piece_us(whole.batch, whole.changes, len(whole.changes))
    if whole.events != count:
        raise BenchmarkDefect(f"the worker's processor applied {whole.events} of {count} events")
    return Stages(
        decode, decode_and_step - decode, accept - decode_and_step, encoded / turns_per_state, batched / turns_per_state
    )


def _decode(slices: Sequence[Sequence[Fetched]]) -> None:
    for records in slices:
        for record in records:
            read_event(record.value)


class _Stepping:
    """Decoding and the core, with the states kept as the worker keeps them."""

    def __init__(self) -> None:
        self._runs = Runs()

    def __call__(self, slices: Sequence[Sequence[Fetched]]) -> None:
        step = self._runs.step
        for records in slices:
            for record in records:
                step(record.key, read_event(record.value), record.timestamp, record.offset)


class _WorkerStages:
    """The worker's processor with its runs, without Kafka."""

    def __init__(self) -> None:
        from streamproc.worker.run_limits import RunLimits
        from streamproc.worker.tables import Runs
        from streamproc.worker.turn_processor import TurnProcessor

        engine = load_policy().engine()
        self._processor = TurnProcessor(
            engine, "turns", event_bytes_max=1 << 20, dead_letter_bytes=1 << 20, version="benchmark"
        )
        limits = RunLimits()
        self._runs = [Runs(partition, limits) for partition in range(64)]
        self.changes: list[tuple[bytes, bytes | None]] = []

    @property
    def events(self) -> int:
        """The number of stepped events."""
        counts = self._processor.counts
        return counts.records - counts.refused - counts.repeated - counts.failures

    def accept(self, slices: Sequence[Sequence[Fetched]]) -> None:
        """Decode, step, and encode the decisions as outgoing records."""
        for records in slices:
            self._processor.accept(self._runs[records[0].partition], records)

    def changed(self) -> list[bytes]:
        """Return the runs whose states have changed."""
        return [key for runs in self._runs for key in runs.dirty]

    def encode(self, _slices: object) -> None:
        """Encode every changed state."""
        for runs in self._runs:
            self.changes += runs.take()

    def batch(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        """Build Kafka batches of encoded states, as the producer does."""
        builder = _builder()
        for key, raw in changes:
            if builder.append(key=key, value=raw, timestamp=None) is None:
                builder.close()
                builder = _builder()
                builder.append(key=key, value=raw, timestamp=None)


def _builder() -> BatchBuilder:
    return BatchBuilder(batch_size=262_144, compression_type=0)
