"""The log of a fleet: thousands of real runs at once, in the order in which Kafka would keep them, and every decision
that the engine makes of it.

Each partition has a marker after its warm-up and another at its end: a run that an operator stops. The decisions about
markers, on the control topic, tell when a worker was there, whatever the worker says of itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka.partitioner import murmur2

from benchmarks.table import BenchmarkDefect
from benchmarks.traces import finished, sample_runs, started
from streamproc.core.run_state import RunState
from streamproc.model import wire
from streamproc.model.wire import WIRE_VERSION, Event, OperatorStop, Turn
from streamproc.policy import load_policy

ACTIVE_RUNS_MAX: Final = 500  # at the same time
EVENT_MS: Final = 1  # a fleet with a thousand events a second
HASHES_MIN: Final = 1 << 44  # of 64 bits each; no count, amount or duration comes near it
BEGIN, END = "begin", "end"


class Record(NamedTuple):
    """A record for the turns topic."""

    key: bytes
    value: bytes
    at_ms: int


class Place(NamedTuple):
    """Where in the log a decision belongs."""

    partition: int
    offset: int


@dataclass
class FleetLog:
    """The records of each partition, and what must come of them."""

    partitions: list[list[Record]]
    decisions: dict[str, Place]  # by id
    markers: dict[str, str]  # decision id → BEGIN or END
    turns_of: dict[str, int]  # run → its turns
    warm_up: int = 0

    @property
    def records(self) -> int:
        """In all partitions."""
        return sum(map(len, self.partitions))

    @property
    def value_bytes(self) -> int:
        """Of all values."""
        return sum(len(record.value) for records in self.partitions for record in records)

    @property
    def measured_records(self) -> int:
        """Between the markers."""
        return self.records - sum(min(self.warm_up, len(records)) for records in self.partitions)

    @property
    def turn_share(self) -> float:
        """Turns for each record: the others are starts, ends and markers."""
        return sum(self.turns_of.values()) / self.records


def partition_of(run_id: str, partitions: int) -> int:
    """As every publisher chooses it."""
    return int(murmur2(run_id.encode()) & 0x7FFFFFFF) % partitions


def fleet_log(turns: int, start_ms: int, partitions: int = 4, seed: int = 11) -> FleetLog:
    """A log of at least so many turns. The same arguments give the same log."""
    log = FleetLog([[] for _ in range(partitions)], {}, {}, {}, warm_up=max(1, turns // partitions // 20))
    marked = _Markers(partitions, start_ms)
    engine = load_policy().engine()
    states: dict[str, RunState] = {}
    places: dict[str, int] = {}

    def add(event: Event, at_ms: int, marker: str = "") -> None:
        run_id = event.run_id
        state = states.get(run_id)
        if state is None:
            state = states[run_id] = RunState()
            places[run_id] = partition_of(run_id, partitions)
        partition = log.partitions[places[run_id]]
        for decision in engine.step(state, event, at_ms):
            log.decisions[decision.id] = Place(places[run_id], len(partition))
            if marker:
                log.markers[decision.id] = marker
        partition.append(Record(run_id.encode(), wire.encode(event), at_ms))

    for event, at_ms in _interleaved(turns, start_ms, seed):
        add(event, at_ms)
        if len(log.partitions[places[event.run_id]]) == log.warm_up:
            add(*marked.event(places[event.run_id], at_ms), BEGIN)
    for partition in range(partitions):
        add(*marked.event(partition, at_ms), END)
    if sorted(log.markers.values()) != sorted([BEGIN, END] * partitions):
        raise BenchmarkDefect("a partition of the log has no marker at its beginning or end")
    log.turns_of = {run_id: state.turns for run_id, state in states.items()}
    return log


def _interleaved(turns: int, start_ms: int, seed: int) -> Iterator[tuple[Event, int]]:
    """Runs side by side, each in its order; one that ends makes room for the next."""
    dice = random.Random(seed)
    copies = _copies(start_ms)
    active = [next(copies) for _ in range(min(ACTIVE_RUNS_MAX, max(8, turns // 100)))]
    begun = 0
    clock = count(start_ms, EVENT_MS)
    while active:
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


def _copies(start_ms: int) -> Iterator[Iterator[Event]]:
    """The samples again and again, as runs of their own."""
    for copy in count():
        for number, run in enumerate(sample_runs()):
            yield _copy([event for event, _ in run], f"{run[0].event.run_id}~{copy}-{number}", start_ms)


def _copy(events: list[Event], run_id: str, start_ms: int) -> Iterator[Event]:
    salt = random.Random(run_id).getrandbits(64)
    yield started(run_id, start_ms).event
    for number, event in enumerate(events):
        own = msgspec.structs.replace(event, run_id=run_id, event_id=f"{run_id}:{number}", at=None)
        yield msgspec.convert(_salted(msgspec.to_builtins(own), salt), type(own))
    yield finished(run_id, start_ms).event


def _salted(value: Any, salt: int) -> Any:
    """The same with other hashes: what is equal or alike in one copy stays so, and no copy is like another, or
    their states would compress as those of no fleet do."""
    if isinstance(value, dict):
        return {name: _salted(part, salt) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_salted(part, salt) for part in value]
    return value ^ salt if type(value) is int and value >= HASHES_MIN else value


class _Markers:
    """Runs whose names fall into a wanted partition."""

    def __init__(self, partitions: int, start_ms: int) -> None:
        self._partitions = partitions
        self._names = (f"marker-{start_ms}-{number}" for number in count())

    def event(self, partition: int, at_ms: int) -> tuple[Event, int]:
        """An operator's order to stop a run of this partition."""
        name = next(name for name in self._names if partition_of(name, self._partitions) == partition)
        return OperatorStop(w=WIRE_VERSION, run_id=name, event_id=name, at=at_ms, by="benchmark"), at_ms
