"""How a caller keeps the states of runs between their events.

Compiled, a state is kept as the bytes that are stored: they are read into one object, which stays in the processor's
cache, and written from it after the event. Uncompiled, that would take longer than the event, so each run has an
object of its own, and is packed only where it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from streamproc.core.compiled import core_kind
from streamproc.core.packed_states import Held as Held, PackedStates
from streamproc.core.run_state import RunState, begin_run, check, dump, load

OBJECTS_MAX: Final = 8_000  # runs kept as objects, about 21 KB each; others are kept as bytes


class States(Protocol):
    """How states are kept. One object serves any number of runs. It is not thread-safe."""

    def begin(self, partition: int) -> Held:
        """Return the state of a new run of a partition of the turns topic."""

    def open(self, held: Held) -> RunState:
        """Return a state to read or to step, valid until the next one is opened."""

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

    def open(self, held: Held) -> RunState:
        return held if isinstance(held, RunState) else load(held)

    def close(self, run: RunState) -> Held:
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


Key = TypeVar("Key", str, bytes)


class KeptRuns(Generic[Key]):
    """The runs of one process, the one opened last at the end. Of objects, at most `objects_max` are kept as such."""

    def __init__(self, objects_max: int = OBJECTS_MAX) -> None:
        self._states = new_states()
        self._held: dict[Key, Held] = {}
        self._objects: dict[Key, None] = {}
        self._objects_max = objects_max

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)

    def open(self, key: Key) -> RunState:
        """Return the state of a run, a new one for a new run, to change it before another one is opened."""
        held = self._held.pop(key, None)
        if held is None:
            held = self._states.begin(-1)
        run = self._states.open(held)
        self._keep(key, run if isinstance(self._states, ObjectStates) else held)
        return run

    def close(self, key: Key, run: RunState) -> None:
        """Keep the state of a run that was opened and changed."""
        self._held[key] = self._states.close(run)

    def drop(self) -> None:
        """Forget the changes to the run that was opened last, if that is possible."""
        self._states.drop()

    def read(self, key: Key) -> RunState | None:
        """Return the state of a run, to read it before another one is opened; None if there is no such run."""
        held = self._held.get(key)
        return None if held is None else self._states.open(held)

    def forget(self, key: Key) -> None:
        """Remove a run."""
        self._held.pop(key, None)
        self._objects.pop(key, None)

    def _keep(self, key: Key, held: Held) -> None:
        self._held[key] = held
        if isinstance(held, bytes):
            return
        self._objects.pop(key, None)
        self._objects[key] = None
        if len(self._objects) > self._objects_max:
            for oldest in list(islice(self._objects, (self._objects_max + 1) // 2)):
                del self._objects[oldest]
                self._held[oldest] = self._states.packed(self._held[oldest])
