"""Events besides turns about which the engine only asks the detectors, each under a kind of evidence of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamproc.core import kind
from streamproc.model.wire import BoardEvent, BudgetReached, ContextCompacted, Event, RunContinued, TurnStarted

NOTED: Final[Mapping[type[Event], int]] = {
    ContextCompacted: kind.CLOCK | kind.COMPACTED,
    RunContinued: kind.CLOCK | kind.CONTINUED,
}
LATE: Final[tuple[type[Event], ...]] = (TurnStarted, BudgetReached, BoardEvent, *NOTED)
"""Events that a finished run only counts."""
