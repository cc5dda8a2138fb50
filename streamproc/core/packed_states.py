"""States of runs kept as bytes between their events: what `states` uses once the core is compiled.

The bytes are those that are stored. They are read into one object, which stays in the processor's cache, and written
from it after the event.
"""

from __future__ import annotations

from typing import TypeAlias

from streamproc.core.records import ccall, cclass, final
from streamproc.core.run_state import RunState, check, dump, load
from streamproc.core.size_budget import FULL_BYTES, shrink

Held: TypeAlias = bytes | RunState
"""A state between two events: bytes (none: of a new run), or an object of its own."""


@final
@cclass
class PackedStates:
    """States kept as bytes; see `states.States`."""

    run: RunState  # the one that states are read into
    held: Held | None  # the state that it holds

    def __init__(self) -> None:
        self.run, self.held = RunState(), None

    @ccall
    def begin(self, partition: int) -> Held:
        self.run.clear()
        self.run.partition = partition
        return self.close(self.run)

    @ccall
    def open(self, held: Held) -> RunState:
        if held is self.held:
            return self.run
        if isinstance(held, RunState):  # of a caller that keeps its object
            return held
        self.held = None  # until it is read
        if held:
            load(held, self.run)
            self.held = held
        else:
            self.run.clear()
        return self.run

    @ccall
    def close(self, run: RunState) -> Held:
        raw: bytes = dump(run)
        if len(raw) > FULL_BYTES:
            shrink(run)
            raw = dump(run)
        self.held = raw if run is self.run else None
        return raw

    def drop(self) -> None:
        self.held = None

    def packed(self, held: Held) -> bytes:
        assert isinstance(held, bytes)
        return held

    def unpacked(self, raw: bytes) -> Held:
        self.held = None
        check(load(raw, self.run))
        self.held = raw
        return raw
