"""States of runs kept as bytes between their events: what `states` uses once the core is compiled.

The bytes are those that are stored. They are read into one object, which stays in the processor's cache, and written
from it after the event, or after several. Between those, a state is measured only where so much was added to it that
it may be too large.
"""

from __future__ import annotations

from typing import TypeAlias

from streamproc.core.records import ccall, cclass, final, grown, i64
from streamproc.core.run_state import STATE_VERSION, RunState, check, dump, load
from streamproc.core.size_budget import FULL_BYTES, shrink

Held: TypeAlias = bytes | RunState
"""A state between two events: bytes (none: of a new run), or an object of its own."""


@final
@cclass
class PackedStates:
    """States kept as bytes; see `states.States`."""

    size: i64  # bytes of the state that is stepped, when it was measured last
    grown_before: i64  # `grown` at that time
    run: RunState  # the one that states are read into
    held: Held | None  # the state that it holds

    def __init__(self) -> None:
        self.run, self.held, self.size, self.grown_before = RunState(), None, 0, 0

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
    def open_to_step(self, held: Held) -> RunState:
        run: RunState = self.open(held)
        self.held = None  # the object is about to differ from it
        self.size, self.grown_before = FULL_BYTES, grown()
        if isinstance(held, bytes) and held and not run.stub and run.version == STATE_VERSION:
            self.size = len(held)  # others grow by being written
        run.room = 1
        return run

    @ccall
    def settle(self, run: RunState) -> None:
        if run.room and self.size + grown() - self.grown_before <= FULL_BYTES:
            return
        self.size = shrink(run)
        self.grown_before = grown()
        run.room = 1

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
