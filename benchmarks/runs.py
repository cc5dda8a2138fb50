"""The core with the states of many runs, kept in the form that is fastest with it: bytes if it is compiled, else
objects. The worker does the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from streamproc.core.decision import Decision
from streamproc.core.engine import NO_POSITION
from streamproc.core.states import Held
from streamproc.model.wire import Event
from streamproc.policy import load_policy

NO_PARTITION: Final = -1


class Runs:
    """Steps the events of any number of runs."""

    def __init__(self, policy: str = "standard") -> None:
        self.engine = load_policy(policy).engine()
        self.states = self.engine.states
        self.held: dict[Hashable, Held] = {}

    def step(
        self, key: Hashable, event: Event, at_ms: int, offset: int = NO_POSITION, partition: int = NO_PARTITION
    ) -> list[Decision]:
        """Apply an event to the run of this key, which begins with its first event; return the decisions."""
        held = self.held.get(key)
        outcome = self.engine.step(self.states.begin(partition) if held is None else held, event, at_ms, offset)
        self.held[key] = outcome.kept
        return outcome.decisions

    def packed(self, key: Hashable) -> bytes:
        """Return the state of a run as it is stored. Raises `KeyError` for an unknown run."""
        return self.states.packed(self.held[key])

    def turns(self, key: Hashable) -> int:
        """Return the number of turns of a run. Raises `KeyError` for an unknown run."""
        return self.states.open(self.held[key]).turns
