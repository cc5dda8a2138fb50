"""TREE008 halted_parent: the run that started this one, or an ancestor of it, is halted.

Sees: that a run of the session is halted, whatever halted it, and what the policy's `children` says of its descendants:
`stop` halts them all, `finish` (the default) lets them finish and halts every child that they start from then on, and
`continue` leaves them alone. A child that is born while its ancestor is being halted is treated alike, in any order. A
run whose child is halted for that is warned once.

Why: children whose parent is gone work for a result that is not read, and start children of their own: 300 agents were
created after their session had been stopped.

False alarms: children that write their results where others read them may be useful without their parent: `continue`.

Tuning: `children` in the policy, for everyone or in a section.

Reference: about 300 agents created after Stop (claude-code#77414).
"""

from __future__ import annotations

from streamproc.core.decision import USER_STOP
from streamproc.core.session_tree import PARENT, REJECTED, RESTRICT
from streamproc.detectors.base import Example, Finding, View
from streamproc.detectors.tree_detector import TreeDetector, family, tree_event


class HaltedParent(TreeDetector):
    code, name = "TREE008", "halted_parent"
    evidence = (*TreeDetector.evidence, "about")
    reason, status = USER_STOP, "stopped"

    class Limits:
        """There are none."""

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = tree_event(view, PARENT)
        if event is None:
            return None
        if event.rung == RESTRICT:
            why = "a run that started this one, or an ancestor of it, is halted"
            message = f"The child run {event.about} was refused, because {why}; start no others."
            return self.told(event, message, kind=self.name, used=None, action="warn")
        halted = f"{event.about}, which started this run or an ancestor of it, is halted"
        rest = "it may have no more children" if event.rung == REJECTED else "its children halt with it"
        return self.told(event, f"{halted}: {rest}.", kind=self.name, used=None, action="halt")


DETECTOR = HaltedParent()
_STOP = {"type": "operator.stop", "run_id": "root"}
HEALTHY = [
    Example("a parent that finishes", [*family({}), {"type": "run.finished", "run_id": "root"}]),
    Example("children may finish after the halt of their parent", [*family({}), _STOP]),
]
STUCK = [
    Example("children stop with their parent", [*family({}), _STOP], "halt", 0, policy={"children": "stop"}),
    Example("a child born after the stop", [*family(), _STOP, family({})[1]], "halt", 0),
]
