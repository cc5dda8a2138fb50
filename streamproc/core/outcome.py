"""What one event causes."""

from __future__ import annotations

from typing import Any

from streamproc.core.charges import Charge
from streamproc.core.decision import Decision
from streamproc.core.packed_states import Held
from streamproc.core.records import cclass, final
from streamproc.core.run_state import dump
from streamproc.errors import Problem


@final
@cclass
class Outcome:
    """What one event causes: all that leaves the engine."""

    kept: Held
    """The state of the run, in the form that the next step takes soonest: bytes, or, uncompiled, an object."""
    decisions: list[Decision]
    """To publish. They have no topic, partition and offset: the caller adds those."""
    charges: list[Charge]
    """To the accounts of its session, user and tenant."""
    refused: Problem | None
    """Why the event was refused; None: it was applied, or is a duplicate."""

    def __init__(self, kept: Held, decisions: list[Decision], charges: list[Charge], refused: Problem | None) -> None:
        self.kept, self.decisions, self.charges, self.refused = kept, decisions, charges, refused

    @property
    def state(self) -> bytes:
        """The state of the run as it is stored. An object is packed now: read it before the next step."""
        kept: Any = self.kept
        return kept if isinstance(kept, bytes) else dump(kept)
