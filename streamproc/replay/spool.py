"""Fingerprinted events in a file, read once and stepped any number of times, by any number of processes.

A log of a million turns would take gigabytes as objects, and every process would need a copy.
"""

from __future__ import annotations

import heapq
import pickle
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

from streamproc.model.wire import FAILED_RETRYABLE, Event, ModelCalled, Turn, decode, encode

_HEAD: Final = struct.Struct("<IIq?")  # number of the run, bytes of the event, log time in ms, whether it is pickled
NO_TIME: Final = -1
BUFFER_BYTES: Final = 1 << 20


class SpooledEvent(NamedTuple):
    """An event on its way to the engine, with its log time (None: not known)."""

    run: int  # number of its run, from 0, in order of appearance
    event: Event
    at_ms: int | None


@dataclass(slots=True)
class SpooledRun:
    """What is known of a run before any policy is tried: the first names that its events give, and its times."""

    run_id: str
    turns: int = 0
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    session: str = ""
    first_ms: int | None = None
    last_ms: int | None = None

    def see(self, event: Event, at_ms: int | None) -> None:
        """Update it with an event."""
        self.turns += type(event) is Turn
        self.workflow = self.workflow or event.workflow
        self.tenant = self.tenant or event.tenant
        self.user = self.user or event.user
        self.session = self.session or event.session_id or event.parent_run_id
        if at_ms is not None:
            self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
            self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)


@dataclass(slots=True)
class Spool:
    """Writes events to a file. Use it as a context manager, then read the file with `spooled`."""

    path: Path
    runs: list[SpooledRun] = field(default_factory=list)
    events: int = 0
    unavailable: int = 0
    """Calls of models that failed for the provider's sake: without any, no breaker opens."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._file = self.path.open("wb", buffering=BUFFER_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def turns(self) -> int:
        """Number of turns of all runs."""
        return sum(run.turns for run in self.runs)

    def add(self, event: Event, at_ms: int | None) -> None:
        """Write an event. Raises `OSError`."""
        assert self._file is not None
        number = self._numbers.get(event.run_id)
        if number is None:
            number = self._numbers[event.run_id] = len(self.runs)
            self.runs.append(SpooledRun(event.run_id))
        self.runs[number].see(event, at_ms)
        self.events += 1
        if type(event) is Turn:
            self.unavailable += event.errors is not None and event.errors.retryable
        elif type(event) is ModelCalled:
            self.unavailable += event.outcome == FAILED_RETRYABLE
        raw, pickled = _written(event)
        self._file.write(_HEAD.pack(number, len(raw), NO_TIME if at_ms is None else at_ms, pickled) + raw)


def _written(event: Event) -> tuple[bytes, bool]:
    try:
        return encode(event), False
    except UnicodeEncodeError:  # half a surrogate pair in a name: legal in a JSON file, and not in the wire format
        return pickle.dumps(event), True


def spooled(path: Path, wanted: array[int] | None = None, part: int = 0) -> Iterator[SpooledEvent]:
    """Yield the events of a spool in order; with `wanted`, only those of runs whose entry in it is `part`."""
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        while head := file.read(_HEAD.size):
            run, size, at_ms, pickled = _HEAD.unpack(head)
            if wanted is not None and wanted[run] != part:
                file.seek(size, 1)
                continue
            raw = file.read(size)
            event = pickle.loads(raw) if pickled else decode(raw)
            yield SpooledEvent(run, event, None if at_ms == NO_TIME else at_ms)


def in_time_order(paths: Iterable[Path]) -> Iterator[SpooledEvent]:
    """Yield the events of several spools by time. Each keeps its own order, whatever its times."""
    merged = heapq.merge(*(_timed(path, number) for number, path in enumerate(paths)), key=lambda one: one[:2])
    return (found for _, _, found in merged)


def _timed(path: Path, number: int) -> Iterator[tuple[int, int, SpooledEvent]]:
    for found in spooled(path):
        yield found.at_ms or 0, number, found
