"""TREE007 waiting_parent: a child that this run may wait for is halted, or has fallen silent.

Sees: what becomes of the runs that this run has started. If one of them is halted, or its silence is reported
(STALL007), the parent is told which one, by which detector, and which of its siblings have finished, so that it can use
their results instead of waiting. It is a warning, once for each child.

Why: a parent that waits for a stuck child is silent itself, and everything that it had collected is lost with it.

False alarms: a parent that has given up a child already is told all the same.

Tuning: there is nothing to tune. `children` in the policy says what becomes of the children of a halted parent.

Reference: 207 aborted parents that waited for a stuck child (opencode#37312).
"""

from __future__ import annotations

from streamproc.core.session_tree import CHILD
from streamproc.detectors.base import START_MS, Example, Finding, Level, View, said
from streamproc.detectors.tree_detector import TreeDetector, family, tree_event

SHOWN = 5  # names of siblings in the message; the evidence has more


class WaitingParent(TreeDetector):
    code, name = "TREE007", "waiting_parent"
    evidence = (*TreeDetector.evidence, "about", "runs")

    class Limits:
        """There are none."""

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = tree_event(view, CHILD)
        if event is None:
            return None
        why = f" ({event.reason})" if event.reason else ""
        what = "is halted" if event.rung == "halted" else "has fallen silent"
        names = ", ".join(event.runs[:SHOWN]) + (", …" if len(event.runs) > SHOWN else "")
        done = f"; {names} {'has' if len(event.runs) == 1 else 'have'} finished: use their results" if names else ""
        message = f"The child run {event.about} {what}{why}: do not wait for it{done}."
        return self.told(event, message, Level.WARN, action="warn", kind=self.name, type="loop.warning", used=None)


DETECTOR = WaitingParent()
_TRY = [said("agent", "I will try again.", run_id="child-1")] * 3
HEALTHY = [
    Example("a run without children", [said("agent", "done"), {"type": "operator.stop"}]),
    Example(
        "children that finish", [*family({}, {}), *({"type": "run.finished", "run_id": f"child-{n}"} for n in (0, 1))]
    ),
]
STUCK = [
    Example("a child that is halted while its sibling has finished", [
        *family({}, {}), {"type": "run.finished", "run_id": "child-0"}, *_TRY,
    ], "warn", 0),
    Example("a child that has fallen silent", [
        *family({"at": START_MS}), {"type": "turn.started", "node": "agent", "run_id": "child-0", "at": START_MS},
        {"type": "deadline", "run_id": "child-0", "at": START_MS + 660_000},
    ], "warn", 0),
]  # fmt: skip
