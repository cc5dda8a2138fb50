"""The runs of one process: stepped by an engine, and kept between their events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from streamproc.core.engine import Engine
    from streamproc.core.outcome import Outcome
    from streamproc.core.run_state import RunState
    from streamproc.core.states import Held, States
    from streamproc.model.wire import Event

OBJECTS_MAX: Final = 8_000  # runs kept as objects, about 21 KB each; others are kept as bytes

Key = TypeVar("Key", str, bytes)


class KeptRuns(Generic[Key]):
    """Steps the runs of one process and keeps their states, the one stepped last at the end. Of objects, at most
    `objects_max` are kept as such."""

    def __init__(self, engine: Engine, objects_max: int = OBJECTS_MAX) -> None:
        self._engine = engine
        self._states: States = engine.states
        self._held: dict[Key, Held] = {}
        self._objects: dict[Key, None] = {}
        self._objects_max = objects_max

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)

    def step(self, key: Key, event: Event, at_ms: int | None, position: int = -1) -> Outcome:
        """Step a run, which begins with its first event. If that fails, its state is as it was, as far as possible."""
        held = self._held.pop(key, b"")
        try:
            outcome = self._engine.step(held, event, at_ms, position)
        except BaseException:
            if held:
                self._held[key] = held
            raise
        self._keep(key, outcome.kept)
        return outcome

    def read(self, key: Key) -> RunState | None:
        """Return the state of a run, to read it before another one is stepped; None if there is no such run."""
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
