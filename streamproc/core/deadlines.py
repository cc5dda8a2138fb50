"""What would be told of a run if it stayed silent: so that somebody puts a `deadline` event into its log in time.

The engine has no clock. A detector that waits for something says until when (`due`); whoever carries events to the
engine (the worker) appends a `Deadline` when the log's time has come that far, and the engine asks the detector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import xxhash

from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.model.wire import WIRE_VERSION, Deadline


class Due(NamedTuple):
    """At log time `due_ms` the detector `about` wants to be asked about what has not happened since `since_ms`."""

    due_ms: int
    about: str
    since_ms: int
    node: str = ""


def next_due(run: RunState, rules: Rules, fault: Callable[[str, Exception], None]) -> Due | None:
    """The first moment that no event has reached yet; `fault` is told of a detector that raised."""
    reached_ms = max(run.at_ms, run.checked_ms)
    budgets = rules.budgets | run.budgets if rules.budgets else run.budgets
    moments: list[Due] = []
    for detector, limits in rules.waiting:
        try:
            moments += detector.due(run, budgets, limits)
        except Exception as problem:  # noqa: BLE001 (as where it is asked: the others go on)
            fault(detector.code, problem)
    return min((due for due in moments if due.due_ms > reached_ms), default=None)


def deadline_event(run_id: str, due: Due) -> Deadline:
    """The event for the log. Its id follows from what it is about: from two workers it is one event."""
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
