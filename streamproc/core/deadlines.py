"""Deadlines: when to ask detectors about a run that sends no events.

The engine has no clock. A detector that waits for something returns until when (`due`). The caller of the engine (the
worker) appends a `Deadline` event once log time has reached that moment, and the engine then asks the detector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import xxhash

from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.model.wire import WIRE_VERSION, Deadline


class Due(NamedTuple):
    """A deadline of a detector."""

    due_ms: int  # log time at which to ask
    about: str  # code of the detector
    since_ms: int  # log time since which it waits
    node: str = ""  # node that it waits for


def next_due(run: RunState, rules: Rules, fault: Callable[[str, Exception], None]) -> Due | None:
    """Return the first deadline in the future; `fault` is called for a detector that raises."""
    reached_ms = max(run.at_ms, run.checked_ms)
    budgets = rules.budgets | run.scope.budgets if rules.budgets else run.scope.budgets
    deadlines: list[Due] = []
    for detector, limits in rules.waiting:
        try:
            deadlines += detector.due(run, budgets, limits)
        except Exception as problem:  # noqa: BLE001 (as in `Engine._ask`: the others still decide)
            fault(detector.code, problem)
    return min((due for due in deadlines if due.due_ms > reached_ms), default=None)


def deadline_event(run_id: str, due: Due) -> Deadline:
    """Return the event for the log. Two workers create the same id, so one of the events is skipped as a duplicate."""
    text = f"deadline\0{run_id}\0{due.about}\0{due.node}\0{due.since_ms}\0{due.due_ms}"
    return Deadline(
        w=WIRE_VERSION,
        run_id=run_id,
        node=due.node,
        event_id=xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass")),
        at=due.due_ms,
        about=due.about,
        since_ms=due.since_ms,
        due_ms=due.due_ms,
    )
