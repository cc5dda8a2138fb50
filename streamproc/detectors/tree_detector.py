"""What the detectors of a session's tree share: an event of the tree says which level was reached, and about what.

The tree (`core.session_tree`) counts and decides whom to tell; these detectors put it into words and levels.
"""

from __future__ import annotations

from typing import Any, Final

from streamproc.core.account_names import TREE, session_of
from streamproc.core.session_tree import EXCEEDED, REJECTED, RESTRICT, WARNING
from streamproc.detectors.base import Finding, Level, RawTurn, View, kind, loop_of
from streamproc.detectors.budget_detector import BudgetDetector
from streamproc.model.wire import BudgetReached

LEVELS: Final = {WARNING: Level.WARN, RESTRICT: Level.WARN, REJECTED: Level.HALT, EXCEEDED: Level.HALT}


def tree_event(view: View, *units: str) -> BudgetReached | None:
    """Return the event that is being looked at, if it is one of a tree about one of these units."""
    event = view.event
    if type(event) is BudgetReached and event.unit in units and event.account.startswith(f"{TREE}:"):
        return event
    return None


class TreeDetector(BudgetDetector):
    """A detector of what a tree reports."""

    kinds = kind.ACCOUNT
    evidence: tuple[str, ...] = "unit", "rung", "account", "window"

    def told(self, event: BudgetReached, message: str, level: Level | None = None, **more: Any) -> Finding:
        """Return the finding about an event. Each limit and level is reported once, of each run that it is about."""
        found = LEVELS[event.rung] if level is None else level
        refused = event.rung == REJECTED
        common: dict[str, Any] = {
            "type": "delegation.rejected" if refused else "budget.level", "anywhere": True,
            "status": "blocked" if refused else self.status,
            "used": event.used, "limit": event.limit or None, "unit": event.unit, "rung": event.rung,
            "account": f"session:{session_of(event.account)}", "window": event.window, "about": event.about or None,
            "runs": list(event.runs) or None,
        }  # fmt: skip
        loop = loop_of(event.account, event.unit, event.rung, event.since_ms, event.about)
        return self.finding(found, loop, message, **common | more)


class LimitDetector(TreeDetector):
    """A detector of one limit on births."""

    evidence = (*TreeDetector.evidence, "used", "limit", "about")
    unit: str
    budget: str
    over = ""  # what there would be too many of, in the message
    kept = ""  # what to do instead

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.budgets = (cls.budget,) if hasattr(cls, "budget") else ()

    class Limits:
        """A share in percent, and a number of births."""

        warn_percent: int = 80
        halt_refusals: int = 10

    def settings(self, limits: Any) -> Any:
        return {} if limits is None else {f"tree_{self.unit}": [limits.warn_percent, limits.halt_refusals]}

    def check(self, view: View, limits: Any) -> Finding | None:
        event = tree_event(view, self.unit)
        if event is None:
            return None
        amount = f"{event.used} of {event.limit} {self.over}"
        if event.rung == REJECTED and not event.used:
            why = f"its session is halted, because births above {self.budget} went on after they were refused"
            return self.told(event, f"This run is refused: {why}.", action="halt", used=None)
        if event.rung == REJECTED:
            message = f"This run is refused: it would be {amount} ({self.budget}). {self.kept}"
            return self.told(event, message.removesuffix(".") + ".", action="halt")
        if event.rung == EXCEEDED:
            return self.told(
                event, f"The session is halted: births above {self.budget} went on after they were refused "
                f"({event.limit} {self.over}).", action="halt",
            )  # fmt: skip
        if event.rung == RESTRICT:
            message = f"The child run {event.about} was refused: {amount} ({self.budget}); start no others."
            return self.told(event, message, action="warn")
        return self.told(event, f"The session has {amount} ({self.budget}).", action="warn")


def family(*births: RawTurn, session: str = "s") -> list[RawTurn]:
    """Return the start of a root run, and of child runs with these fields."""
    root: RawTurn = {"type": "run.started", "run_id": "root", "session_id": session}
    children = [
        {"type": "run.started", "run_id": f"child-{n}", "parent_run_id": "root", "session_id": session, **fields}
        for n, fields in enumerate(births)
    ]
    return [root, *children]
