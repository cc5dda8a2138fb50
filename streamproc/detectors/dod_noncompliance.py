"""TASK005 dod_noncompliance: a task goes on without what "done" means.

Sees: a move past QA_REVIEW where the definition-of-done report fails in an item, is missing, or is not approved. The
move is blocked and the task goes back to REWORK; at the second attempt the agent is flagged.

Why: what is not done comes back from every later state, and from there it costs more.

False alarms: a report that was sent with an earlier event of the same round of work counts. A team that publishes no
reports at all hears of every task, twice: take the guard off the board then.

Tuning: `flag` is the attempt at which the agent is flagged; the guard `dod` of the board says which ways ask for it.

Reference: tickets requirement, "any item with `status: false`, or no report, or `verdict != APPROVED`".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, actor, moved, ordinal, refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """Attempts to go on."""

    flag: int = 2  # the first may be a mistake; the second was told


class DodNoncompliance:
    """TASK005."""

    code = "TASK005"
    name = "dod_noncompliance"
    kinds = kind.BOARD

    def check(self, view: View, limits: Limits) -> Finding | None:
        step = view.board_change
        if step is None or step.task is None or step.refused != self.code or step.attempts not in (1, limits.flag):
            return None
        law, task = step.config, step.task
        message = f"{task.id} may not go on to {law.name(step.target)}: {', '.join(step.missing)} missing or failing"
        if step.attempts < limits.flag or step.attempts == 1:
            return refusal(view, self.code, self.name, f"{message}. It is {law.name(task.state)}.")
        who = actor(view.event) or "whoever works on it"
        message = f"{message}, for the {ordinal(step.attempts)} time: give it to somebody other than {who}, or ask."
        return refusal(view, self.code, self.name, message, action="ask_human")


DETECTOR = DodNoncompliance()

_GOOD = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}, {"name": "docs", "status": True}]}
_POOR = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}, {"name": "docs", "status": False}]}

HEALTHY = [
    Example("an approved report", moved("T1", "IMPLEMENTING", "QA_REVIEW", "VALIDATION", dod=_GOOD)),
    Example("the report came with the move before", [
        *moved("T1", "IMPLEMENTING", "QA_REVIEW", evidence={"dod_report": "approved"}),
        *moved("T1", "QA_REVIEW", "VALIDATION"),
    ]),
    Example("a failing report, and the review sends it back", moved(
        "T1", "IMPLEMENTING", "QA_REVIEW", "REWORK", dod=_POOR,
    )),
]  # fmt: skip
STUCK = [
    Example("an item fails", moved("T1", "IMPLEMENTING", "QA_REVIEW", "VALIDATION", dod=_POOR), "warn", 0),
    Example("no report", moved("T1", "QA_REVIEW", "VALIDATION"), "warn", 0),
    Example("not approved", moved("T1", "QA_REVIEW", "VALIDATION", dod=_GOOD | {"verdict": "PENDING"}), "warn", 0),
]
