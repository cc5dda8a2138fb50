"""The log of a fleet: thousands of interleaved real runs in the order of a Kafka topic, and the expected decisions.

Each partition has a marker after its warm-up and another at its end: a run that an operator stops. The decisions on the
markers, on the control topic, show when a worker got there, independently of its own log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka.partitioner import murmur2

from benchmarks.runs import Runs
from benchmarks.table import BenchmarkDefect
from benchmarks.traces import Logged, finished, sample_runs, started
from streamproc.model import wire
from streamproc.model.wire import WIRE_VERSION, Event, OperatorStop, Turn

ACTIVE_RUNS_MAX: Final = 1_000  # simultaneously
EVENT_MS: Final = 1  # a fleet with 1 000 events per second
HASHES_MIN: Final = 1 << 44  # hashes have 64 bits; counts, amounts and durations are far smaller
BEGIN, END = "begin", "end"


class Record(NamedTuple):
    """A record for the turns topic."""

    key: bytes
    value: bytes
    at_ms: int


class Place(NamedTuple):
    """The position in the log that leads to a decision."""

    partition: int
    offset: int


@dataclass
class FleetLog:
    """The records of each partition, and the expected results."""

    partitions: list[list[Record]]
    decisions: dict[str, Place]  # by id
    markers: dict[str, str]  # decision id → BEGIN or END
    turns_of: dict[str, int]  # run → number of turns
    warm_up: int = 0

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(map(len, self.partitions))

    @property
    def value_bytes(self) -> int:
        """The size of all values."""
        return sum(len(record.value) for records in self.partitions for record in records)

    @property
    def measured_records(self) -> int:
        """The number of records between the markers."""
        return self.records - sum(min(self.warm_up, len(records)) for records in self.partitions)

    @property
    def turn_share(self) -> float:
        """The share of turns among the records; the others are starts, ends and markers."""
        return sum(self.turns_of.values()) / self.records


def partition_of(run_id: str, partitions: int) -> int:
    """Return the partition that every publisher chooses."""
    return int(murmur2(run_id.encode()) & 0x7FFFFFFF) % partitions


def fleet_log(
    turns: int, start_ms: int, partitions: int = 4, seed: int = 11, *, wide: int = 0, family: int = 0,
    policy: str = "standard",
) -> FleetLog:  # fmt: skip
    """Build a log of at least `turns` turns. The same arguments give the same log.

    With `wide`, so many runs take turns and the log ends in the middle of them: each state changes rarely. With
    `family`, so many runs in turn are a session: its first run has started the others, and none of them is halted, of
    which the first would learn by an event that is not in this log.
    """
    log = FleetLog([[] for _ in range(partitions)], {}, {}, {}, warm_up=max(1, turns // partitions // 20))
    marked = _Markers(partitions, start_ms)
    runs = Runs(policy)
    places: dict[str, int] = {}

    def add(event: Event, at_ms: int, marker: str = "") -> None:
        run_id = event.run_id
        if run_id not in places:
            places[run_id] = partition_of(run_id, partitions)
        partition = log.partitions[places[run_id]]
        for decision in runs.step(run_id, event, at_ms):
            log.decisions[decision.id] = Place(places[run_id], len(partition))
            if marker:
                log.markers[decision.id] = marker
        partition.append(Record(run_id.encode(), wire.encode(event), at_ms))

    for event, at_ms in _interleaved(turns, start_ms, seed, wide, family):
        add(event, at_ms)
        if len(log.partitions[places[event.run_id]]) == log.warm_up:
            add(*marked.event(places[event.run_id], at_ms), BEGIN)
    for partition in range(partitions):
        add(*marked.event(partition, at_ms), END)
    if sorted(log.markers.values()) != sorted([BEGIN, END] * partitions):
        raise BenchmarkDefect("a partition of the log lacks a marker")
    log.turns_of = {run_id: runs.turns(run_id) for run_id in places}
    return log


def _interleaved(turns: int, start_ms: int, seed: int, wide: int, family: int) -> Iterator[tuple[Event, int]]:
    """Interleave runs, each in its order. When one ends, the next begins."""
    dice = random.Random(seed)
    copies = in_sessions(copies_of_samples(start_ms, unhalted()), family) if family else copies_of_samples(start_ms)
    active = [next(copies) for _ in range(wide or min(ACTIVE_RUNS_MAX, max(8, turns // 40)))]
    begun = 0
    clock = count(start_ms, EVENT_MS)
    while active and not (wide and begun >= turns):
        place = dice.randrange(len(active))
        event = next(active[place], None)
        if event is not None:
            begun += type(event) is Turn
            event.at = next(clock)
            yield event, event.at
        elif begun < turns:
            active[place] = next(copies)
        else:
            active[place] = active[-1]
            active.pop()


def copies_of_samples(start_ms: int, samples: list[list[Logged]] | None = None) -> Iterator[Iterator[Event]]:
    """Yield copies of the samples (of these, if given) without end, as separate runs."""
    for copy in count():
        for number, run in enumerate(samples or sample_runs()):
            yield _copy([event for event, _ in run], f"{run[0].event.run_id}~{copy}-{number}", start_ms)


def unhalted() -> list[list[Logged]]:
    """Return the samples that the engine does not halt."""
    runs = Runs()
    halted = {
        number
        for number, run in enumerate(sample_runs())
        for event, at_ms in run
        for decision in runs.step(number, event, at_ms)
        if decision.severity == "halt"
    }
    return [run for number, run in enumerate(sample_runs()) if number not in halted]


def in_sessions(copies: Iterator[Iterator[Event]], family: int) -> Iterator[Iterator[Event]]:
    """Make every `family` of runs a session, whose first run has started the others."""
    while True:
        root = ""
        for run in islice(copies, family):
            first = next(run)
            session = root or first.run_id
            yield chain([msgspec.structs.replace(first, session_id=session, parent_run_id=root)], run)
            root = session


def _copy(events: list[Event], run_id: str, start_ms: int) -> Iterator[Event]:
    salt = random.Random(run_id).getrandbits(64)
    yield started(run_id, start_ms).event
    for number, event in enumerate(events):
        own = msgspec.structs.replace(event, run_id=run_id, event_id=f"{run_id}:{number}", at=None)
        yield msgspec.convert(_salted(msgspec.to_builtins(own), salt), type(own))
    yield finished(run_id, start_ms).event


def _salted(value: Any, salt: int) -> Any:
    """Return the same value with other hashes. Equal and similar contents of a copy stay so, but no copy resembles
    another: their states would compress better than those of a real fleet."""
    if isinstance(value, dict):
        return {name: _salted(part, salt) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_salted(part, salt) for part in value]
    return value ^ salt if type(value) is int and value >= HASHES_MIN else value


class _Markers:
    """Names runs that fall into a given partition."""

    def __init__(self, partitions: int, start_ms: int) -> None:
        self._partitions = partitions
        self._names = (f"marker-{start_ms}-{number}" for number in count())

    def event(self, partition: int, at_ms: int) -> tuple[Event, int]:
        """Return an operator's command to stop a run of this partition."""
        name = next(name for name in self._names if partition_of(name, self._partitions) == partition)
        return OperatorStop(w=WIRE_VERSION, run_id=name, event_id=name, at=at_ms, by="benchmark"), at_ms
