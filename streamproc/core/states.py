"""How a caller keeps the states of runs between their events.

Compiled, a state is kept as the bytes that are stored: they are read into one object, which stays in the processor's
cache, and written from it after the event. Uncompiled, that would take longer than the event, so each run has an
object of its own, and is packed only where it is stored.
"""

from __future__ import annotations

from typing import Protocol

from streamproc.core.compiled import core_kind
from streamproc.core.packed_states import Held as Held, PackedStates
from streamproc.core.packing import grown
from streamproc.core.run_state import RunState, begin_run, check, dump, load
from streamproc.core.size_budget import FULL_BYTES, shrink


class States(Protocol):
    """How states are kept. One object serves any number of runs. It is not thread-safe."""

    def begin(self, partition: int) -> Held:
        """Return the state of a new run of a partition of the turns topic."""

    def open(self, held: Held) -> RunState:
        """Return a state to read or to step, valid until the next one is opened."""

    def open_to_step(self, held: Held) -> RunState:
        """Return a state to step several times, with `settle` after each, until it is closed."""

    def settle(self, run: RunState) -> None:
        """Bound the size of a state that was stepped, as `close` does."""

    def close(self, run: RunState) -> Held:
        """Return how to keep an opened state that was changed."""

    def drop(self) -> None:
        """Forget the changes to the state that was opened last, if that is possible."""

    def packed(self, held: Held) -> bytes:
        """Return a state as it is stored."""

    def unpacked(self, raw: bytes) -> Held:
        """Return a stored state as it is kept. Raises `StateError`."""


class ObjectStates:
    """States kept as objects."""

    def begin(self, partition: int) -> Held:
        return begin_run(partition)

    def __init__(self) -> None:
        self._grown = 0  # `grown` when the last state was opened

    def open(self, held: Held) -> RunState:
        self._grown = grown()
        if isinstance(held, RunState):
            return held
        return load(held) if held else RunState()

    def open_to_step(self, held: Held) -> RunState:
        return self.open(held)

    def settle(self, run: RunState) -> None:
        """Measure the state, which takes a quarter of a turn, once so much was added that it may be too large."""
        run.room -= grown() - self._grown
        self._grown = grown()
        if run.room <= 0:
            run.room = FULL_BYTES - shrink(run)

    def close(self, run: RunState) -> Held:
        self.settle(run)
        return run

    def drop(self) -> None:
        pass

    def packed(self, held: Held) -> bytes:
        return held if isinstance(held, bytes) else dump(held)

    def unpacked(self, raw: bytes) -> Held:
        run = load(raw)
        check(run)
        return run


def new_states() -> States:
    """Return the way to keep states that is fastest with this core."""
    return PackedStates() if core_kind() == "compiled" else ObjectStates()
